import type { ReactNode } from 'react';
import classes from './panel.module.css';

interface PanelProps {
  children: ReactNode;
  labelledBy?: string;
  isFlush?: boolean;
}

/** A quiet surface with a hairline; `isFlush` for tables that reach its edges. */
export function Panel({ children, labelledBy, isFlush = false }: PanelProps) {
  return (
    <section
      className={classes.root}
      aria-labelledby={labelledBy}
      data-flush={isFlush || undefined}
    >
      {children}
    </section>
  );
}
