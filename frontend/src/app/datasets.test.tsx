import { screen, within } from '@testing-library/react';
import { http, HttpResponse } from 'msw';
import { expect, test } from 'vitest';
import { database } from '@/testing/database';
import { makeDataset, makeJob, uuid } from '@/testing/fixtures';
import { renderApp } from '@/testing/render-app';
import { problem, server } from '@/testing/server';

test('lists datasets with counts, version and a link', async () => {
  renderApp('/datasets');
  expect(await screen.findByRole('heading', { name: 'Datasets', level: 1 })).toBeVisible();
  const card = await screen.findByRole('listitem');
  expect(within(card).getByRole('link', { name: 'demo' })).toHaveAttribute(
    'href',
    '/datasets/demo',
  );
  expect(card).toHaveTextContent('v1');
  expect(card).toHaveTextContent('250 samples · 4.5 MB');
  expect(document.title).toBe('Datasets · Penstock');
});

test('search asks the server and keeps the words in the address', async () => {
  database.datasets = [makeDataset(), makeDataset({ id: uuid(2), slug: 'kidney' })];
  const { user, router } = renderApp('/datasets');
  await user.type(await screen.findByRole('searchbox', { name: 'Search datasets' }), 'kid');
  expect(await screen.findByText('1 dataset')).toBeVisible();
  expect(screen.queryByRole('link', { name: 'demo' })).not.toBeInTheDocument();
  expect(router.state.location.search).toEqual({ query: 'kid' });
});

test('without datasets the commands to run are shown', async () => {
  database.datasets = [];
  renderApp('/datasets');
  expect(await screen.findByRole('heading', { name: 'No datasets yet' })).toBeVisible();
  expect(screen.getAllByLabelText('first commands')[0]).toHaveTextContent('penstock ingest');
});

test('a refusal shows detail, code and request id', async () => {
  server.use(
    http.get('*/api/v1/datasets', () =>
      problem(403, 'auth.forbidden', 'You may not list datasets.'),
    ),
  );
  renderApp('/datasets');
  const alert = await screen.findByRole('alert');
  expect(alert).toHaveTextContent('You may not list datasets.');
  expect(alert).toHaveTextContent('auth.forbidden');
  expect(alert).toHaveTextContent('req-1');
});

test('adding data makes the dataset, starts the ingest and opens the job', async () => {
  const bodies: unknown[] = [];
  server.use(
    http.post('*/api/v1/datasets', async ({ request }) => {
      bodies.push(await request.json());
      expect(request.headers.get('X-CSRF-Token')).toBe('csrf-1');
      expect(request.headers.get('Idempotency-Key')).toMatch(/^[0-9a-f]{32}$/);
      return HttpResponse.json(makeDataset({ slug: 'patches' }), { status: 201 });
    }),
    http.post('*/api/v1/datasets/patches/ingests', async ({ request }) => {
      bodies.push(await request.json());
      return HttpResponse.json(makeJob(), { status: 202 });
    }),
  );
  const { user, router } = renderApp('/datasets');
  await user.click(await screen.findByRole('button', { name: 'Add data' }));
  const dialog = await screen.findByRole('dialog', { name: 'Add data' });
  await user.type(within(dialog).getByLabelText(/Dataset name/), 'patches');
  await user.type(within(dialog).getByLabelText(/Folder on the server/), '/data/slides');
  await user.type(within(dialog).getByLabelText(/Label column/), 'tumor');
  await user.click(within(dialog).getByRole('button', { name: 'Start ingest' }));
  expect(await screen.findByRole('heading', { name: 'ingest demo', level: 1 })).toBeVisible();
  expect(router.state.location.pathname).toBe(`/jobs/${uuid(40)}`);
  expect(bodies).toEqual([
    { name: 'patches' },
    { source: { kind: 'folder', path: '/data/slides' }, label: 'tumor' },
  ]);
});

test('a wrong folder is said at its field, and a bad name before anything is sent', async () => {
  server.use(
    http.post('*/api/v1/datasets/demo/ingests', () =>
      problem(422, 'ingest.folder_not_found', 'There is no folder /nope on the server.'),
    ),
  );
  const { user } = renderApp('/datasets/demo');
  await user.click(await screen.findByRole('button', { name: 'Add data' }));
  const dialog = await screen.findByRole('dialog', { name: 'Add data to demo' });
  const folder = within(dialog).getByLabelText(/Folder on the server/);
  await user.type(folder, 'nope');
  await user.click(within(dialog).getByRole('button', { name: 'Start ingest' }));
  expect(folder).toHaveAccessibleDescription(/full path/);
  await user.clear(folder);
  await user.type(folder, '/nope');
  await user.click(within(dialog).getByRole('button', { name: 'Start ingest' }));
  expect(await within(dialog).findByRole('alert')).toBeVisible();
  expect(folder).toBeInvalid();
  expect(folder).toHaveAccessibleDescription(/There is no folder \/nope/);
});
