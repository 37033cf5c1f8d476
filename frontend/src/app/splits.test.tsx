import { screen, within } from '@testing-library/react';
import { http, HttpResponse } from 'msw';
import { expect, test } from 'vitest';
import { database } from '@/testing/database';
import { makeSplit, uuid } from '@/testing/fixtures';
import { renderApp } from '@/testing/render-app';
import { problem, server } from '@/testing/server';

test('a split shows asked and achieved, the proof and four lines to copy', async () => {
  renderApp('/datasets/demo/splits');
  const card = await screen.findByRole('region', { name: 'by-patient@1' });
  expect(card).toHaveTextContent(
    'No leak: 0 of 60 patients and 0 equal files shared between subsets.',
  );
  const train = within(card).getByRole('row', { name: /^train/ });
  expect(train).toHaveTextContent('200');
  expect(train).toHaveTextContent('80.0 %');
  expect(train).toHaveTextContent('tumor 25.0 %');
  expect(within(card).getByText(/demo@1/)).toHaveTextContent('split="by-patient@1/train"');
  expect(within(card).getByRole('button', { name: /Copy training lines/ })).toBeEnabled();
});

test('a new split takes group and label from the schema and sends the recipe', async () => {
  const bodies: unknown[] = [];
  server.use(
    http.post('*/api/v1/datasets/demo/splits', async ({ request }) => {
      bodies.push(await request.json());
      const split = makeSplit({ id: uuid(33), name: 'by-patient', number: 2 });
      database.splits = [split, ...database.splits];
      return HttpResponse.json(split, { status: 201 });
    }),
  );
  const { user } = renderApp('/datasets/demo/splits');
  await user.click(await screen.findByRole('button', { name: 'New split' }));
  const dialog = await screen.findByRole('dialog', { name: 'New split of demo v1' });
  const seed = within(dialog).getByLabelText('Seed');
  await user.clear(seed);
  await user.type(seed, '7');
  await user.click(within(dialog).getByRole('button', { name: 'Publish by-patient' }));
  expect(await screen.findByRole('region', { name: 'by-patient@2' })).toBeVisible();
  expect(screen.queryByRole('dialog')).not.toBeInTheDocument();
  expect(bodies).toEqual([
    {
      name: 'by-patient',
      version: 1,
      recipe: {
        format: 1,
        subsets: [
          { name: 'train', ratio: 0.7 },
          { name: 'val', ratio: 0.15 },
          { name: 'test', ratio: 0.15 },
        ],
        group_by: 'patient',
        stratify_by: ['tumor'],
        filter: null,
        seed: 7,
      },
    },
  ]);
});

test('an infeasible recipe keeps the dialog open and says why', async () => {
  server.use(
    http.post('*/api/v1/datasets/demo/splits', () =>
      problem(422, 'split.infeasible', 'The class "tumor" is in 2 patients; 3 subsets need 3.', [
        { pointer: '/recipe/subsets/2/ratio', message: 'cannot be filled' },
      ]),
    ),
  );
  const { user } = renderApp('/datasets/demo/splits');
  await user.click(await screen.findByRole('button', { name: 'New split' }));
  const dialog = await screen.findByRole('dialog', { name: 'New split of demo v1' });
  await user.click(within(dialog).getByRole('button', { name: 'Publish by-patient' }));
  expect(await within(dialog).findByRole('alert')).toHaveTextContent('split.infeasible');
  expect(within(dialog).getByLabelText('Share of subset 3 in percent')).toBeInvalid();
});

test('subsets that are more than the whole are refused before anything is sent', async () => {
  const { user } = renderApp('/datasets/demo/splits');
  await user.click(await screen.findByRole('button', { name: 'New split' }));
  const dialog = await screen.findByRole('dialog', { name: 'New split of demo v1' });
  const share = within(dialog).getByLabelText('Share of subset 1 in percent');
  await user.clear(share);
  await user.type(share, '90');
  await user.click(within(dialog).getByRole('button', { name: 'Publish by-patient' }));
  expect(await within(dialog).findByText(/add up to 120 %/)).toBeVisible();
});

test('the snippet follows the chosen subset', async () => {
  const { user } = renderApp('/datasets/demo/snippet');
  const code = await screen.findAllByLabelText('training lines');
  expect(code[0]).toHaveTextContent('by-patient@1/train');
  await user.click(screen.getByRole('combobox', { name: 'Subset' }));
  await user.click(await screen.findByRole('option', { name: 'val' }));
  expect(code[0]).toHaveTextContent('by-patient@1/val');
  expect(code[0]).not.toHaveTextContent('shuffle');
});

test('lines for torch come first, and lines for numpy are remembered everywhere', async () => {
  const { user, unmount } = renderApp('/datasets/demo/snippet');
  const lines = await screen.findAllByLabelText('training lines');
  expect(lines[0]).not.toHaveTextContent('output=');
  expect(screen.getAllByLabelText('environment')[0]).toHaveTextContent('penstock[torch]');
  await user.click(screen.getByRole('radio', { name: 'numpy' }));
  expect(lines[0]).toHaveTextContent('shuffle=True, output="numpy")');
  expect(screen.getAllByLabelText('environment')[0]).not.toHaveTextContent('torch');
  unmount();
  renderApp('/datasets/demo/splits');
  const card = await screen.findByRole('region', { name: 'by-patient@1' });
  expect(within(card).getByRole('radio', { name: 'numpy' })).toBeChecked();
  expect(within(card).getByText(/demo@1/)).toHaveTextContent('output="numpy"');
});

test('all split cards follow one choice of torch or numpy', async () => {
  database.splits = [makeSplit(), makeSplit({ id: uuid(34), name: 'other', is_default: false })];
  const { user } = renderApp('/datasets/demo/splits');
  const first = await screen.findByRole('region', { name: 'by-patient@1' });
  const second = await screen.findByRole('region', { name: 'other@1' });
  await user.click(within(first).getByRole('radio', { name: 'numpy' }));
  expect(within(second).getByText(/demo@1/)).toHaveTextContent('output="numpy"');
});

test('versions are listed with digest, and tabs lead from one to the other', async () => {
  const { user, router } = renderApp('/datasets/demo');
  await user.click(await screen.findByRole('tab', { name: 'Versions' }));
  const table = await screen.findByRole('table', { name: 'Versions' });
  const row = within(table).getByRole('row', { name: /v1/ });
  expect(row).toHaveTextContent('9f2c41ab');
  expect(within(row).getByRole('link', { name: 'v1' })).toHaveAttribute(
    'href',
    '/datasets/demo?version=1',
  );
  expect(router.state.location.pathname).toBe('/datasets/demo/versions');
});
