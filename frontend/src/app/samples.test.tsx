import { screen, waitFor, within } from '@testing-library/react';
import { http } from 'msw';
import { expect, test } from 'vitest';
import { renderApp } from '@/testing/render-app';
import { problem, server } from '@/testing/server';

const grid = () => screen.findByRole('grid', { name: 'Samples' });

test('the grid shows tiles named by label and key under the total line', async () => {
  renderApp('/datasets/demo');
  expect(
    await within(await grid()).findByRole('button', { name: 'tumor P001/0.png' }),
  ).toBeVisible();
  expect(await screen.findByText('250 samples · 2 patients')).toBeVisible();
  expect(document.title).toBe('demo – Samples · Penstock');
});

test('random order with seed 0 is asked for first, and shuffling changes the seed', async () => {
  const asked: string[] = [];
  server.events.on('request:start', ({ request }) => {
    const url = new URL(request.url);
    if (url.pathname.endsWith('/samples')) asked.push(url.search);
  });
  const { user } = renderApp('/datasets/demo');
  await grid();
  expect(asked[0]).toContain('order=random&seed=0&offset=0');
  await user.click(screen.getByRole('button', { name: 'Shuffle again' }));
  await waitFor(() => {
    expect(asked.at(-1)).toContain('seed=1');
  });
  server.events.removeAllListeners();
});

test('a facet filters the grid, stands as a chip and in the address, and can be taken away', async () => {
  const { user, router } = renderApp('/datasets/demo');
  await user.click(await screen.findByRole('checkbox', { name: 'tumor tumor, 84' }));
  expect(await screen.findByText('84 of 250 samples · 2 patients')).toBeVisible();
  await waitFor(() => {
    expect(screen.queryByRole('button', { name: /^normal / })).not.toBeInTheDocument();
  });
  expect(router.state.location.search).toEqual({ picks: { tumor: ['tumor'] } });
  expect(screen.getByRole('checkbox', { name: 'tumor normal, 166' })).not.toBeChecked();
  await user.click(screen.getByRole('button', { name: 'Remove filter tumor = tumor' }));
  expect(await screen.findByText('250 samples · 2 patients')).toBeVisible();
  expect(router.state.location.search).toEqual({});
});

test('what the server says about a filter stands at its field, and the old grid stays', async () => {
  server.use(
    http.get('*/api/v1/datasets/demo/versions/1/samples', ({ request }) => {
      if (!request.url.includes('bad')) return undefined;
      return problem(400, 'filter.invalid', 'There is no column "bad".');
    }),
  );
  const { user } = renderApp('/datasets/demo');
  await grid();
  const field = screen.getByRole('textbox', { name: 'Filter' });
  await user.type(field, 'bad = 1{Enter}');
  await waitFor(() => {
    expect(screen.getByRole('textbox', { name: 'Filter' })).toHaveAccessibleDescription(
      'There is no column "bad".',
    );
  });
  expect(screen.getByRole('button', { name: 'tumor P001/0.png' })).toBeInTheDocument();
  expect(screen.queryByRole('alert')).not.toBeInTheDocument();
});

test('a sample opens with its metadata; j and k move, m hides the mask, Escape closes', async () => {
  const { user, router } = renderApp('/datasets/demo');
  await user.click(await within(await grid()).findByRole('button', { name: 'tumor P001/0.png' }));
  const first = await screen.findByRole('dialog', { name: 'Sample P001/0.png' });
  expect(
    await within(first).findByRole('img', { name: 'image of P001/0.png' }),
  ).toBeInTheDocument();
  expect(within(first).getByRole('row', { name: /patient.*P001/ })).toBeInTheDocument();
  expect(within(first).getByRole('button', { name: 'Copy Sample id' })).toBeInTheDocument();
  expect(within(first).getByRole('img', { name: 'Mask' })).toBeInTheDocument();
  await user.keyboard('m');
  expect(within(first).queryByRole('img', { name: 'Mask' })).not.toBeInTheDocument();
  await user.keyboard('j');
  expect(await screen.findByRole('dialog', { name: 'Sample P002/1.png' })).toBeInTheDocument();
  expect(screen.getByText('2 of 250')).toBeInTheDocument();
  await user.keyboard('k');
  expect(await screen.findByRole('dialog', { name: 'Sample P001/0.png' })).toBeInTheDocument();
  await user.keyboard('{Escape}');
  await waitFor(() => {
    expect(screen.queryByRole('dialog')).not.toBeInTheDocument();
  });
  expect(router.state.location.search).toEqual({});
});

test('arrow keys move the focus through the grid', async () => {
  const { user } = renderApp('/datasets/demo');
  const tile = await within(await grid()).findByRole('button', { name: 'tumor P001/0.png' });
  tile.focus();
  await user.keyboard('{ArrowRight}{ArrowRight}');
  await waitFor(() => {
    expect(screen.getByRole('button', { name: 'normal P001/2.png' })).toHaveFocus();
  });
});

test('an unknown dataset is said with its code', async () => {
  renderApp('/datasets/nothing');
  expect(await screen.findByRole('alert')).toHaveTextContent('dataset.not_found');
});
