import { screen, waitFor } from '@testing-library/react';
import { http, HttpResponse } from 'msw';
import { expect, test } from 'vitest';
import { renderApp } from '@/testing/render-app';
import { server } from '@/testing/server';

test('the focus and the title follow the page', async () => {
  const { user } = renderApp('/datasets');
  await user.click(await screen.findByRole('link', { name: 'Settings' }));
  const heading = await screen.findByRole('heading', { name: 'Settings', level: 1 });
  await waitFor(() => {
    expect(heading).toHaveFocus();
  });
  expect(document.title).toBe('Settings · Penstock');
  expect(screen.getByRole('link', { name: 'Settings' })).toHaveAttribute('aria-current', 'page');
});

test('the first stop of the keyboard skips the navigation', async () => {
  const { user } = renderApp('/datasets');
  await screen.findByRole('heading', { name: 'Datasets', level: 1 });
  await user.tab();
  expect(screen.getByRole('link', { name: 'Skip to the content' })).toHaveFocus();
});

test('a server that does not answer is said in a banner, and what is known stays', async () => {
  // An open event stream would say that the server is there.
  server.use(http.get('*/api/v1/events', () => HttpResponse.error()));
  const { user } = renderApp('/datasets');
  await screen.findByRole('link', { name: 'demo' });
  server.use(http.all('*/api/v1/*', () => HttpResponse.error()));
  await user.type(screen.getByRole('searchbox', { name: 'Search datasets' }), 'd');
  await waitFor(() => {
    expect(screen.getByText(/does not answer. This page shows what it last knew/)).toBeVisible();
  });
});

test('an unknown address says so', async () => {
  renderApp('/nowhere');
  expect(await screen.findByRole('heading', { name: 'Not found' })).toBeVisible();
});
