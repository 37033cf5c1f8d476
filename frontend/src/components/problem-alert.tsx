import { Button, Group, Text } from '@mantine/core';
import { AlertIcon } from '@/components/icons';
import { CopyButton } from '@/components/copy-button';
import { ApiError, messageOf } from '@/lib/problem';
import classes from './problem-alert.module.css';

interface ProblemAlertProps {
  error: unknown;
  title?: string;
  onRetry?: () => void;
}

/** What went wrong in the server's words, with the code and the request id to quote. */
export function ProblemAlert({ error, title, onRetry }: ProblemAlertProps) {
  const api = error instanceof ApiError ? error : null;
  return (
    <div role="alert" className={classes.root}>
      <span className={classes.icon}>
        <AlertIcon />
      </span>
      <div className={classes.body}>
        <Text fw={600}>{title ?? api?.title ?? 'Something went wrong'}</Text>
        <Text size="sm">{messageOf(error)}</Text>
        {api !== null && api.fields.length > 0 && (
          <ul className={classes.fields}>
            {api.fields.map(({ pointer, message }) => (
              <li key={pointer}>
                <span className="mono">{pointer}</span>: {message}
              </li>
            ))}
          </ul>
        )}
        {api !== null && (
          <Group gap={6} className={classes.meta}>
            <span className="mono">{api.code}</span>
            {api.requestId !== null && (
              <>
                <span>request</span>
                <span className="mono">{api.requestId}</span>
                <CopyButton value={api.requestId} label="Copy request id" />
              </>
            )}
          </Group>
        )}
      </div>
      {onRetry !== undefined && (
        <Button variant="default" size="xs" onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}
