import { AppLink } from '@/components/app-link';
import { Logo } from '@/components/logo';
import { PageHeader } from '@/components/page-header';
import classes from './login.module.css';

export function NotFoundRoute() {
  return (
    <main className={classes.root}>
      <Logo />
      <PageHeader title="Not found" detail="There is nothing at this address." />
      <AppLink to="/datasets">Go to the datasets</AppLink>
    </main>
  );
}
