import { client } from '@/api/generated/client.gen';
import { ApiError, OfflineError } from '@/lib/problem';

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);

let csrfToken: string | null = null;

/** Keeps the token of the session in memory only: it must not survive the page. */
export function setCsrfToken(token: string | null): void {
  csrfToken = token;
}

export function configureApiClient(): void {
  client.interceptors.request.clear();
  client.interceptors.error.clear();
  client.setConfig({ baseUrl: window.location.origin, credentials: 'same-origin' });
  client.interceptors.request.use((request) => {
    if (csrfToken !== null && !SAFE_METHODS.has(request.method)) {
      request.headers.set('X-CSRF-Token', csrfToken);
    }
    return request;
  });
  client.interceptors.error.use((error, response: Response | undefined) => {
    if (response === undefined) {
      return error instanceof DOMException && error.name === 'AbortError'
        ? error
        : new OfflineError();
    }
    return new ApiError(response.status, error, response.headers.get('X-Request-ID'));
  });
}

/** A key that makes a repeated POST harmless; works on plain http, where randomUUID is missing. */
export function idempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
