import { CopyButton } from '@/components/copy-button';
import classes from './code-block.module.css';

interface CodeBlockProps {
  code: string;
  /** What the code is, for the names of the block and of its button. */
  label: string;
  isWrapped?: boolean;
}

export function CodeBlock({ code, label, isWrapped = false }: CodeBlockProps) {
  return (
    <figure className={classes.root} aria-label={label}>
      <pre
        className={classes.code}
        data-wrapped={isWrapped || undefined}
        tabIndex={0}
        aria-label={label}
      >
        <code>{code}</code>
      </pre>
      <div className={classes.copy}>
        <CopyButton value={code} label={`Copy ${label}`} withText />
      </div>
    </figure>
  );
}
