import { screen, within } from '@testing-library/react';
import { http } from 'msw';
import { expect, test, vi } from 'vitest';
import { database } from '@/testing/database';
import { makeDataset, makeLoader, makeRun, makeSplit, uuid } from '@/testing/fixtures';
import { renderApp } from '@/testing/render-app';
import { eventStream, server } from '@/testing/server';

// jsdom has no canvas; what the chart is given is tested through its label and its table.
vi.mock('uplot', () => ({
  default: class {
    setData(): void {
      return undefined;
    }
    setSize(): void {
      return undefined;
    }
    destroy(): void {
      return undefined;
    }
  },
}));

const card = () => screen.findByRole('region', { name: 'resnet-a' });

test('a run leads with its verdict and shows rates and ranks, the worst first', async () => {
  database.runs = [
    makeRun({
      world_size: 2,
      loaders: [
        makeLoader({ rank: 0, wait_share: 0.05 }),
        makeLoader({ id: uuid(61), rank: 1, wait_share: 0.19, host: 'gpu2' }),
      ],
      totals: { ...makeRun().totals, wait_share: 0.12, samples_per_second: 9420 },
    }),
  ];
  renderApp('/live');
  const run = await card();
  expect(within(run).getByTestId('verdict')).toHaveTextContent('WAITS FOR DATA 12 %');
  expect(within(run).getByTestId('samples-per-second')).toHaveTextContent('9,420');
  expect(within(run).getByTestId('megabytes-per-second')).toHaveTextContent('15.0');
  expect(run).toHaveTextContent('worst rank 1: 19 %');
  const ranks = within(await within(run).findByRole('table', { name: 'Ranks' })).getAllByRole(
    'row',
  );
  expect(ranks[1]).toHaveTextContent('gpu2');
});

test('the figures and the chart move with the event stream', async () => {
  const stream = eventStream();
  server.use(http.get('*/api/v1/events', () => stream.response));
  const { user } = renderApp('/live');
  const run = await card();
  expect(
    await within(run).findByRole('img', { name: /Samples per second of resnet-a: now 1,200/ }),
  ).toBeInTheDocument();
  await screen.findByText('Live updates on');
  stream.send('run', makeRun({ totals: { ...makeRun().totals, samples_per_second: 2345 } }));
  expect(await within(run).findByText('2,345')).toBeVisible();
  expect(
    await within(run).findByRole('img', { name: /now 2,345, between 1,200 and 2,345/ }),
  ).toBeInTheDocument();
  await user.click(within(run).getByRole('button', { name: 'Numbers of resnet-a' }));
  const rows = within(within(run).getByRole('table', { name: 'Points of resnet-a' })).getAllByRole(
    'row',
  );
  expect(rows[1]).toHaveTextContent('2,345');
});

test('pausing keeps the figures still', async () => {
  const stream = eventStream();
  server.use(http.get('*/api/v1/events', () => stream.response));
  const { user, queryClient } = renderApp('/live');
  const run = await card();
  await screen.findByText('Live updates on');
  await user.click(screen.getByRole('button', { name: 'Pause' }));
  stream.send('run', makeRun({ totals: { ...makeRun().totals, samples_per_second: 2345 } }));
  await vi.waitFor(() => {
    expect(JSON.stringify(queryClient.getQueryData(['runs', 'list']))).toContain('2345');
  });
  expect(within(run).getByTestId('samples-per-second')).toHaveTextContent('1,200');
  await user.click(screen.getByRole('button', { name: 'Resume' }));
  expect(await within(run).findByText('2,345')).toBeVisible();
});

test('ended runs stand in a table and open on their own address', async () => {
  database.runs = [makeRun({ state: 'ended', ended_at: '2026-11-16T12:10:00Z' })];
  const { user, router } = renderApp('/live');
  expect(await screen.findByRole('heading', { name: 'No loader is running' })).toBeVisible();
  const ended = screen.getByRole('table', { name: 'Ended' });
  await user.click(within(ended).getByRole('link', { name: 'resnet-a' }));
  expect(within(await card()).getByTestId('verdict')).toHaveTextContent('ENDED Ran for 10 min');
  expect(router.state.location.pathname).toBe(`/live/${uuid(50)}`);
});

test('without runs the lines to start one are shown, on a dataset and split that exist', async () => {
  database.runs = [];
  database.datasets = [
    makeDataset({ slug: 'empty', default_split: null }),
    makeDataset({ id: uuid(9), slug: 'patches' }),
  ];
  database.splits = [makeSplit({ dataset: 'patches' })];
  renderApp('/live');
  const code = await screen.findAllByLabelText('training lines');
  expect(code[0]?.textContent.split('\n')).toHaveLength(4);
  expect(code[0]).toHaveTextContent('"patches@1", split="by-patient@1/train"');
});

test('without runs and datasets the page says what is needed first', async () => {
  database.runs = [];
  database.datasets = [];
  renderApp('/live');
  expect(await screen.findByRole('link', { name: 'add data and make one' })).toBeVisible();
  expect(screen.queryByLabelText('training lines')).not.toBeInTheDocument();
});
