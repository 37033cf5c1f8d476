import classes from './status-badge.module.css';

export type Tone = 'ok' | 'warn' | 'bad' | 'idle' | 'active';

interface StatusBadgeProps {
  tone: Tone;
  children: string;
}

/** A state told by its word; the dot's colour only repeats it. */
export function StatusBadge({ tone, children }: StatusBadgeProps) {
  return (
    <span className={classes.root} data-tone={tone}>
      <span className={classes.dot} aria-hidden="true" />
      {children}
    </span>
  );
}
