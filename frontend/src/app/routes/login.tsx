import { useNavigate, useRouterState, useSearch } from '@tanstack/react-router';
import { useCallback, useEffect, useState } from 'react';
import { Logo } from '@/components/logo';
import { LoginPanel } from '@/features/session/components/login-panel';
import { codeFromFragment } from '@/features/session/login-code';
import { safeReturnPath } from '@/lib/return-path';
import classes from './login.module.css';

export function LoginRoute() {
  const { return_to: returnTo } = useSearch({ from: '/login' });
  const navigate = useNavigate();
  const hash = useRouterState({ select: (state) => state.location.hash });
  const arrived = codeFromFragment(hash);
  const [code, setCode] = useState(arrived);
  if (arrived !== null && arrived !== code) setCode(arrived);
  useEffect(() => {
    if (arrived === null) return;
    // The code leaves the address at once: it must not stay in the history.
    const { pathname, search } = window.location;
    window.history.replaceState(window.history.state, '', pathname + search);
  }, [arrived]);
  const onLoggedIn = useCallback(() => {
    void navigate({ to: safeReturnPath(returnTo), replace: true });
  }, [navigate, returnTo]);
  return (
    <main className={classes.root}>
      <Logo />
      <LoginPanel code={code} onLoggedIn={onLoggedIn} />
    </main>
  );
}
