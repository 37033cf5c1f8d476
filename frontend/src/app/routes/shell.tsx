import { AppShell, Burger, Group } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { Outlet } from '@tanstack/react-router';
import { EventStream } from '@/app/event-stream';
import { Navigation } from '@/app/navigation';
import { OfflineBanner } from '@/app/offline-banner';
import { useRouteFocus } from '@/app/use-route-focus';
import { Logo } from '@/components/logo';
import classes from './shell.module.css';

export function ShellRoute() {
  const [isMenuOpen, menu] = useDisclosure(false);
  useRouteFocus(menu.close);
  return (
    <EventStream>
      <a href="#main" className={classes.skip}>
        Skip to the content
      </a>
      <AppShell
        header={{ height: { base: 48, sm: 0 } }}
        navbar={{ width: 200, breakpoint: 'sm', collapsed: { mobile: !isMenuOpen } }}
        padding={{ base: 'md', md: 'lg' }}
      >
        <AppShell.Header hiddenFrom="sm" className={classes.header}>
          <Group h="100%" px="md" gap="sm">
            <Burger
              opened={isMenuOpen}
              onClick={menu.toggle}
              size="sm"
              aria-label="Menu"
              aria-expanded={isMenuOpen}
            />
            <Logo />
          </Group>
        </AppShell.Header>
        <AppShell.Navbar className={classes.navbar}>
          <Navigation />
        </AppShell.Navbar>
        <AppShell.Main id="main" tabIndex={-1} className={classes.main}>
          <OfflineBanner />
          <Outlet />
        </AppShell.Main>
      </AppShell>
    </EventStream>
  );
}
