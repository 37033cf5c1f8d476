import { Group, Text, Title } from '@mantine/core';
import type { ReactNode } from 'react';
import { usePageTitle } from '@/lib/use-page-title';
import classes from './page-header.module.css';

interface PageHeaderProps {
  title: string;
  documentTitle?: string;
  above?: ReactNode;
  detail?: ReactNode;
  actions?: ReactNode;
}

/** The one `h1` of a page; it takes the focus when the route changes (see app/use-route-focus). */
export function PageHeader({ title, documentTitle, above, detail, actions }: PageHeaderProps) {
  usePageTitle(documentTitle ?? title);
  return (
    <header className={classes.root}>
      {above}
      <Group justify="space-between" align="flex-end" gap="md">
        <div className={classes.text}>
          <Title order={1} tabIndex={-1} dir="auto" className={classes.title}>
            {title}
          </Title>
          {detail !== undefined && (
            <Text component="div" size="sm" c="dimmed" className="numbers">
              {detail}
            </Text>
          )}
        </div>
        {actions !== undefined && <Group gap="xs">{actions}</Group>}
      </Group>
    </header>
  );
}
