import { screen } from '@testing-library/react';
import { http } from 'msw';
import { expect, test } from 'vitest';
import { database } from '@/testing/database';
import { renderApp } from '@/testing/render-app';
import { problem, server } from '@/testing/server';

test('without a session every page leads to the login page, which explains the command', async () => {
  database.isLoggedIn = false;
  const { router } = renderApp('/datasets/demo/splits?version=1');
  expect(await screen.findByRole('heading', { name: 'Log in to Penstock' })).toBeVisible();
  expect(screen.getAllByLabelText('login command')[0]).toHaveTextContent('penstock login-link');
  expect(router.state.location.search).toEqual({ return_to: '/datasets/demo/splits?version=1' });
});

test('the code of the address is exchanged once, leaves the address and leads back', async () => {
  database.isLoggedIn = false;
  const { router } = renderApp('/login?return_to=%2Fdatasets%2Fdemo%2Fversions#code=good');
  expect(await screen.findByRole('table', { name: 'Versions' })).toBeVisible();
  expect(router.state.location.pathname).toBe('/datasets/demo/versions');
  expect(window.location.hash).toBe('');
});

test('a used code is refused in words, and a pasted link works', async () => {
  database.isLoggedIn = false;
  const { user } = renderApp('/login#code=old');
  const alert = await screen.findByRole('alert');
  expect(alert).toHaveTextContent('This code has been used.');
  expect(alert).toHaveTextContent('auth.code_invalid');
  await user.type(
    screen.getByLabelText('Or paste the link or its code'),
    'http://127.0.0.1:8080/login#code=good',
  );
  await user.click(screen.getByRole('button', { name: 'Log in' }));
  expect(await screen.findByRole('heading', { name: 'Datasets', level: 1 })).toBeVisible();
});

test('a session that ends under way leads to the login page and back', async () => {
  const { user, router } = renderApp('/datasets');
  await screen.findByRole('link', { name: 'demo' });
  database.isLoggedIn = false;
  server.use(
    http.get('*/api/v1/jobs', () => problem(401, 'auth.unauthenticated', 'Log in first.')),
  );
  await user.click(screen.getByRole('link', { name: 'Jobs' }));
  expect(await screen.findByRole('heading', { name: 'Log in to Penstock' })).toBeVisible();
  expect(router.state.location.search).toEqual({ return_to: '/jobs' });
});
