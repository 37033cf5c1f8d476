import '@testing-library/jest-dom/vitest';
import { notifications } from '@mantine/notifications';
import { cleanup, configure } from '@testing-library/react';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { configureApiClient, setCsrfToken } from '@/lib/api-client';
import { resetDatabase } from '@/testing/database';
import { server } from '@/testing/server';

// What jsdom lacks: media queries, observers, layout.
window.matchMedia = (query: string) =>
  ({
    matches: false,
    media: query,
    addEventListener: () => undefined,
    removeEventListener: () => undefined,
    addListener: () => undefined,
    removeListener: () => undefined,
  }) as unknown as MediaQueryList;

class StillObserver {
  observe(): void {
    return undefined;
  }
  unobserve(): void {
    return undefined;
  }
  disconnect(): void {
    return undefined;
  }
}
window.ResizeObserver = StillObserver as unknown as typeof ResizeObserver;
Element.prototype.scrollTo = () => undefined;
Element.prototype.scrollIntoView = () => undefined;
window.scrollTo = () => undefined;
for (const kind of ['offset', 'client']) {
  Object.defineProperty(HTMLElement.prototype, `${kind}Width`, {
    get: () => 1200,
    configurable: true,
  });
  Object.defineProperty(HTMLElement.prototype, `${kind}Height`, {
    get: () => 800,
    configurable: true,
  });
}

// Machines that run everything at once are slow, not wrong.
configure({ asyncUtilTimeout: 10_000 });

configureApiClient();

beforeAll(() => {
  server.listen({ onUnhandledRequest: 'error' });
});
afterEach(() => {
  notifications.clean();
  cleanup();
  server.resetHandlers();
  resetDatabase();
  setCsrfToken(null);
  localStorage.clear();
});
afterAll(() => {
  server.close();
});
