import { screen, within } from '@testing-library/react';
import { http, HttpResponse } from 'msw';
import { expect, test } from 'vitest';
import { database } from '@/testing/database';
import { makeJob, uuid } from '@/testing/fixtures';
import { renderApp } from '@/testing/render-app';
import { eventStream, problem, server } from '@/testing/server';

const failed = makeJob({
  id: uuid(41),
  state: 'failed',
  error: { code: 'ingest.too_many_bad', detail: '112 of 200 files could not be read.' },
});

test('progress moves with the event stream', async () => {
  const stream = eventStream();
  server.use(http.get('*/api/v1/events', () => stream.response));
  renderApp('/jobs');
  expect(await screen.findByText('Writing 100 of 250 samples')).toBeVisible();
  await screen.findByText('Live updates on');
  stream.send(
    'job',
    makeJob({ progress: { done: 200, total: 250, phase: 'write', unit: 'samples' } }),
  );
  expect(await screen.findByText('Writing 200 of 250 samples')).toBeVisible();
  expect(screen.getByRole('progressbar', { name: 'Progress of ingest demo' })).toHaveAttribute(
    'aria-valuenow',
    '80',
  );
  stream.send(
    'job',
    makeJob({
      state: 'succeeded',
      result: { version: 2, sample_count: 250, quarantined_count: 0 },
    }),
  );
  expect(await screen.findByText('v2, 250 samples')).toBeVisible();
  expect(screen.queryByRole('progressbar')).not.toBeInTheDocument();
});

test('a job that the list does not know yet appears', async () => {
  const stream = eventStream();
  server.use(http.get('*/api/v1/events', () => stream.response));
  renderApp('/jobs');
  await screen.findByRole('table', { name: 'Jobs' });
  await screen.findByText('Live updates on');
  database.jobs = [...database.jobs, failed];
  stream.send('job', failed);
  expect(await screen.findByText('112 of 200 files could not be read.')).toBeVisible();
});

test('a running job can be cancelled, and a refusal is told', async () => {
  let cancelled = '';
  server.use(
    http.post('*/api/v1/jobs/:id/cancel', ({ params }) => {
      if (cancelled !== '') return problem(409, 'job.not_cancellable', 'It has ended already.');
      cancelled = String(params.id);
      return HttpResponse.json(makeJob(), { status: 202 });
    }),
  );
  const { user } = renderApp('/jobs');
  await user.click(await screen.findByRole('button', { name: 'Cancel ingest demo' }));
  expect(await screen.findByText('Stopping')).toBeVisible();
  expect(cancelled).toBe(uuid(40));
});

test('the states can be filtered', async () => {
  database.jobs = [makeJob(), failed];
  const { user } = renderApp('/jobs');
  await screen.findByText('2 jobs');
  await user.click(screen.getByRole('radio', { name: 'Failed' }));
  expect(await screen.findByText('1 job')).toBeVisible();
});

test('a job tells its error and the files that were set aside', async () => {
  database.jobs = [
    { ...failed, quarantined: [{ key: 'P003/17.png', reason: 'The file ends too early.' }] },
  ];
  renderApp(`/jobs/${uuid(41)}`);
  expect(await screen.findByRole('alert')).toHaveTextContent('ingest.too_many_bad');
  const table = screen.getByRole('table', { name: 'Files set aside' });
  expect(within(table).getByRole('row', { name: /P003\/17.png/ })).toHaveTextContent(
    'The file ends too early.',
  );
});
