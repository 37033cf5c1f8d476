import { Stack } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { PageHeader } from '@/components/page-header';
import { SessionPanel } from '@/features/session/components/session-panel';
import { ThemePanel } from '@/features/settings/components/theme-panel';
import { TokenPanel } from '@/features/settings/components/token-panel';

export function SettingsRoute() {
  const navigate = useNavigate();
  return (
    <>
      <PageHeader title="Settings" />
      <Stack gap="md" maw={880}>
        <SessionPanel onLoggedOut={() => void navigate({ to: '/login' })} />
        <TokenPanel />
        <ThemePanel />
      </Stack>
    </>
  );
}
