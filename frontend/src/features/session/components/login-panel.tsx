import { Button, Skeleton, Stack, Text, TextInput, Title } from '@mantine/core';
import { useEffect, useRef, useState } from 'react';
import { CodeBlock } from '@/components/code-block';
import { ProblemAlert } from '@/components/problem-alert';
import { usePageTitle } from '@/lib/use-page-title';
import { useLogin } from '@/features/session/api/session';
import { codeFrom } from '@/features/session/login-code';
import classes from './login-panel.module.css';

interface LoginPanelProps {
  /** The one-time code of the address, or null when the page was opened without one. */
  code: string | null;
  onLoggedIn: () => void;
}

export function LoginPanel({ code, onLoggedIn }: LoginPanelProps) {
  usePageTitle('Log in');
  const login = useLogin();
  const { mutate } = login;
  const [typed, setTyped] = useState('');
  const sentCode = useRef<string | null>(null);

  useEffect(() => {
    // A code works once: development builds run effects twice, and must not send it twice.
    if (code === null || sentCode.current === code) return;
    sentCode.current = code;
    mutate(code, { onSuccess: onLoggedIn });
  }, [code, mutate, onLoggedIn]);

  const isWorking = login.isPending || login.isSuccess || (code !== null && login.isIdle);
  if (isWorking) {
    return (
      <Stack className={classes.root} role="status" aria-label="Logging in">
        <Title order={1}>Logging in</Title>
        <Skeleton height={14} width="80%" />
        <Skeleton height={14} width="60%" />
      </Stack>
    );
  }
  const submit = (event: React.FormEvent) => {
    event.preventDefault();
    mutate(codeFrom(typed), { onSuccess: onLoggedIn });
  };
  return (
    <Stack className={classes.root}>
      <Title order={1} tabIndex={-1}>
        Log in to Penstock
      </Title>
      {login.isError && <ProblemAlert error={login.error} title="This link does not work" />}
      <Text>
        Penstock has no passwords. Make a login link on the machine where the server runs and open
        it here; it works once, for ten minutes.
      </Text>
      <CodeBlock code="penstock login-link" label="login command" />
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            label="Or paste the link or its code"
            placeholder="http://127.0.0.1:8080/login#code=..."
            value={typed}
            autoComplete="off"
            spellCheck={false}
            onChange={(event) => {
              setTyped(event.currentTarget.value);
            }}
          />
          <Button type="submit" disabled={typed.trim() === ''}>
            Log in
          </Button>
        </Stack>
      </form>
    </Stack>
  );
}
