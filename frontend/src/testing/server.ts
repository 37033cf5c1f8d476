import { http, HttpResponse } from 'msw';
import { setupServer } from 'msw/node';
import type { SampleRead } from '@/api/generated';
import { database } from '@/testing/database';
import { makeSampleDetail, uuid } from '@/testing/fixtures';

const API = '*/api/v1';

/** A refusal as the real server words it. */
export function problem(status: number, code: string, detail: string, errors?: unknown) {
  return HttpResponse.json(
    {
      type: 'about:blank',
      title: 'Refused',
      status,
      detail,
      code,
      request_id: 'req-1',
      context: {},
      errors,
    },
    { status, headers: { 'Content-Type': 'application/problem+json' } },
  );
}

const page = <T>(items: T[]) =>
  HttpResponse.json({ items, next_cursor: null, prev_cursor: null, total: items.length });

const session = () =>
  HttpResponse.json({ user: { id: uuid(9), name: 'anna', role: 'admin' }, csrf_token: 'csrf-1' });

/** Enough of the filter language for tests: `column = 'value'` and `column IN (...)` joined by AND. */
function matching(filter: string | null): SampleRead[] {
  if (filter === null) return database.samples;
  const clauses = [...filter.matchAll(/(\w+) (?:= ('[^']*')|IN \(([^)]*)\))/g)];
  return database.samples.filter(({ metadata }) =>
    clauses.every(([, column = '', one, many]) =>
      (many ?? one ?? '').includes(`'${String(metadata[column])}'`),
    ),
  );
}

function counts(samples: readonly SampleRead[], column: string) {
  const byValue = new Map<unknown, number>();
  for (const { metadata } of samples) {
    byValue.set(metadata[column], (byValue.get(metadata[column]) ?? 0) + 1);
  }
  return [...byValue].map(([value, count]) => ({ value, count }));
}

export const server = setupServer(
  http.get(`${API}/session`, () =>
    database.isLoggedIn ? session() : problem(401, 'auth.unauthenticated', 'Log in first.'),
  ),
  http.post(`${API}/session`, async ({ request }) => {
    const { code } = (await request.json()) as { code: string };
    if (code !== 'good') return problem(401, 'auth.code_invalid', 'This code has been used.');
    database.isLoggedIn = true;
    return session();
  }),
  http.delete(`${API}/session`, () => {
    database.isLoggedIn = false;
    return new HttpResponse(null, { status: 204 });
  }),
  http.get(`${API}/events`, () => eventStream().response),
  http.get(`${API}/tokens`, () => page(database.tokens)),
  http.get(`${API}/datasets`, ({ request }) => {
    const query = new URL(request.url).searchParams.get('query') ?? '';
    return page(database.datasets.filter(({ slug }) => slug.includes(query)));
  }),
  http.get(`${API}/datasets/:slug`, ({ params }) => {
    const found = database.datasets.find(({ slug }) => slug === params.slug);
    return found === undefined
      ? problem(404, 'dataset.not_found', `There is no dataset ${String(params.slug)}.`)
      : HttpResponse.json(found);
  }),
  http.get(`${API}/datasets/:slug/versions`, () => page(database.versions)),
  http.get(`${API}/datasets/:slug/splits`, () => page(database.splits)),
  http.get(`${API}/datasets/:slug/versions/:version/samples`, ({ request }) => {
    const query = new URL(request.url).searchParams;
    const offset = Number(query.get('offset'));
    const found = matching(query.get('filter'));
    const items = found.slice(offset, offset + Number(query.get('limit')));
    return HttpResponse.json({ items, next_cursor: null, prev_cursor: null, total: found.length });
  }),
  http.get(`${API}/datasets/:slug/versions/:version/facets`, ({ request }) => {
    const query = new URL(request.url).searchParams;
    const found = matching(query.get('filter'));
    const facets = (query.get('columns') ?? '')
      .split(',')
      .map((column) =>
        column === 'age'
          ? { column, values: null, min: 40, max: 89 }
          : { column, values: counts(found, column), min: null, max: null },
      );
    return HttpResponse.json({ total: found.length, facets });
  }),
  http.get(`${API}/datasets/:slug/versions/:version/samples/:id`, ({ params }) => {
    const found = database.samples.find(({ id }) => id === params.id);
    return found === undefined
      ? problem(404, 'sample.not_found', 'There is no such sample.')
      : HttpResponse.json(makeSampleDetail(found));
  }),
  http.get(`${API}/jobs`, ({ request }) => {
    const state = new URL(request.url).searchParams.get('state');
    return page(database.jobs.filter((job) => state === null || job.state === state));
  }),
  http.get(`${API}/jobs/:id`, ({ params }) => {
    const found = database.jobs.find(({ id }) => id === params.id);
    return found === undefined
      ? problem(404, 'job.not_found', 'There is no such job.')
      : HttpResponse.json(found);
  }),
  http.get(`${API}/runs`, () => page(database.runs)),
  http.get(`${API}/runs/:id`, ({ params }) => {
    const found = database.runs.find(({ id }) => id === params.id);
    return HttpResponse.json({ ...found, points: database.points });
  }),
);

/** An open event stream, and what sends events through it or cuts it. */
export function eventStream() {
  const encoder = new TextEncoder();
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  const body = new ReadableStream<Uint8Array>({
    start(opened) {
      controller = opened;
      opened.enqueue(encoder.encode(': keep-alive\n\n'));
    },
  });
  return {
    response: new HttpResponse(body, { headers: { 'Content-Type': 'text/event-stream' } }),
    send: (event: string, data: unknown, id = '1') => {
      const text = `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
      controller?.enqueue(encoder.encode(text));
    },
    close: () => {
      controller?.close();
    },
  };
}
