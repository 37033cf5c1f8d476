import { screen, waitFor, within } from '@testing-library/react';
import { http, HttpResponse } from 'msw';
import { expect, test } from 'vitest';
import { database } from '@/testing/database';
import { makeToken, uuid } from '@/testing/fixtures';
import { renderApp } from '@/testing/render-app';
import { server } from '@/testing/server';

test('a new token shows its secret once', async () => {
  const bodies: unknown[] = [];
  server.use(
    http.post('*/api/v1/tokens', async ({ request }) => {
      bodies.push(await request.json());
      const token = makeToken({ id: uuid(71), name: 'slurm' });
      database.tokens = [...database.tokens, token];
      return HttpResponse.json({ ...token, secret: 'pst_secret' }, { status: 201 });
    }),
  );
  const { user } = renderApp('/settings');
  await user.click(await screen.findByRole('button', { name: 'New token' }));
  const dialog = await screen.findByRole('dialog', { name: 'New token' });
  await user.click(within(dialog).getByRole('button', { name: 'Create token' }));
  expect(within(dialog).getByLabelText(/Name/)).toBeInvalid();
  await user.type(within(dialog).getByLabelText(/Name/), 'slurm');
  await user.click(within(dialog).getByRole('button', { name: 'Create token' }));
  expect(await screen.findByText('pst_secret')).toBeVisible();
  expect(bodies).toEqual([{ name: 'slurm', expires_in_days: 90 }]);
  await user.click(screen.getByRole('button', { name: 'Done' }));
  await waitFor(() => {
    expect(screen.queryByText('pst_secret')).not.toBeInTheDocument();
  });
  expect(await screen.findByRole('row', { name: /slurm/ })).toBeVisible();
});

test('revoking asks first, then takes the token away', async () => {
  server.use(
    http.delete('*/api/v1/tokens/:id', ({ params }) => {
      database.tokens = database.tokens.filter(({ id }) => id !== params.id);
      return new HttpResponse(null, { status: 204 });
    }),
  );
  const { user } = renderApp('/settings');
  await user.click(await screen.findByRole('button', { name: 'Revoke gpu-box' }));
  expect(database.tokens).toHaveLength(1);
  await user.click(await screen.findByRole('button', { name: 'Revoke token' }));
  expect(await screen.findByText('No tokens yet.')).toBeVisible();
});

test('the theme is kept in the browser', async () => {
  const { user } = renderApp('/settings');
  await user.click(await screen.findByRole('radio', { name: 'Dark' }));
  expect(localStorage.getItem('penstock-color-scheme')).toBe('dark');
  expect(document.documentElement).toHaveAttribute('data-mantine-color-scheme', 'dark');
  await user.click(screen.getByRole('radio', { name: 'Light' }));
});

test('logging out leads to the login page', async () => {
  const { user } = renderApp('/settings');
  expect(await screen.findByText('anna')).toBeVisible();
  await user.click(screen.getByRole('button', { name: 'Log out' }));
  expect(await screen.findByRole('heading', { name: 'Log in to Penstock' })).toBeVisible();
});
