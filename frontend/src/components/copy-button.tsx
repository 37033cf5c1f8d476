import { ActionIcon, Button, Tooltip } from '@mantine/core';
import { useEffect, useState } from 'react';
import { CheckIcon, CopyIcon } from '@/components/icons';
import { copyText } from '@/lib/clipboard';

interface CopyButtonProps {
  value: string;
  /** Accessible name of the small form; the text of the large one is "Copy". */
  label: string;
  withText?: boolean;
}

type Outcome = 'idle' | 'copied' | 'failed';

const TEXTS: Record<Outcome, string> = { idle: 'Copy', copied: 'Copied', failed: 'Press Ctrl+C' };

export function CopyButton({ value, label, withText = false }: CopyButtonProps) {
  const [outcome, setOutcome] = useState<Outcome>('idle');
  useEffect(() => {
    if (outcome === 'idle') return;
    const timer = setTimeout(() => {
      setOutcome('idle');
    }, 2000);
    return () => {
      clearTimeout(timer);
    };
  }, [outcome]);
  const copy = () => {
    void copyText(value).then((isCopied) => {
      setOutcome(isCopied ? 'copied' : 'failed');
    });
  };
  const Icon = outcome === 'copied' ? CheckIcon : CopyIcon;
  return (
    <>
      {withText ? (
        <Button
          variant="default"
          size="xs"
          leftSection={<Icon size={14} />}
          onClick={copy}
          aria-label={label}
        >
          {TEXTS[outcome]}
        </Button>
      ) : (
        <Tooltip label={outcome === 'idle' ? label : TEXTS[outcome]}>
          <ActionIcon size="sm" aria-label={label} onClick={copy}>
            <Icon size={14} />
          </ActionIcon>
        </Tooltip>
      )}
      <span role="status" className="visually-hidden">
        {outcome === 'copied' ? 'Copied' : ''}
      </span>
    </>
  );
}
