export interface FieldProblem {
  pointer: string;
  message: string;
}

/** A refused request: what the server said, in the words of its problem+json body. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly requestId: string | null;
  readonly context: Record<string, unknown>;
  readonly fields: FieldProblem[];

  constructor(status: number, body: unknown, requestId: string | null = null) {
    const problem = isRecord(body) ? body : {};
    const title = text(problem.title) ?? fallbackTitle(status);
    super(text(problem.detail) ?? title);
    this.name = 'ApiError';
    this.status = status;
    this.title = title;
    this.code = text(problem.code) ?? `http.${String(status)}`;
    this.requestId = text(problem.request_id) ?? requestId;
    this.context = isRecord(problem.context) ? problem.context : {};
    this.fields = Array.isArray(problem.errors) ? problem.errors.filter(isFieldProblem) : [];
  }
}

/** The server could not be reached at all. */
export class OfflineError extends Error {
  constructor() {
    super('The Penstock server does not answer. Is it running, and can this machine reach it?');
    this.name = 'OfflineError';
  }
}

export function isUnauthenticated(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Messages by form field: `/recipe/seed` becomes `recipe.seed`. */
export function fieldMessages(error: unknown): Record<string, string> {
  if (!(error instanceof ApiError)) return {};
  return Object.fromEntries(
    error.fields.map(({ pointer, message }) => [
      pointer.replace(/^#?\/(body\/)?/, '').replaceAll('/', '.'),
      message,
    ]),
  );
}

function fallbackTitle(status: number): string {
  if (status >= 500) return 'The server failed to answer this request.';
  return `The server refused this request (HTTP ${String(status)}).`;
}

function text(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isFieldProblem(value: unknown): value is FieldProblem {
  return isRecord(value) && typeof value.pointer === 'string' && typeof value.message === 'string';
}
