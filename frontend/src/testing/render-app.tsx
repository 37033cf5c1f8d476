import { createMemoryHistory } from '@tanstack/react-router';
import { render } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { App, createApp } from '@/app/app';

/** The whole page at an address, against the mock server. */
export function renderApp(path: string) {
  const app = createApp({ history: createMemoryHistory({ initialEntries: [path] }) });
  const user = userEvent.setup();
  const view = render(<App app={app} />);
  return { ...view, user, router: app.router, queryClient: app.queryClient };
}
