import { Link } from '@tanstack/react-router';
import { DatasetsIcon, JobsIcon, LiveIcon, SettingsIcon } from '@/components/icons';
import { Logo } from '@/components/logo';
import { StreamLight } from '@/app/stream-light';
import classes from './navigation.module.css';

const items = [
  { to: '/datasets', label: 'Datasets', Icon: DatasetsIcon },
  { to: '/live', label: 'Live', Icon: LiveIcon },
  { to: '/jobs', label: 'Jobs', Icon: JobsIcon },
  { to: '/settings', label: 'Settings', Icon: SettingsIcon },
] as const;

export function Navigation() {
  return (
    <div className={classes.root}>
      <div className={classes.brand}>
        <Logo />
      </div>
      <nav aria-label="Main" className={classes.items}>
        {items.map(({ to, label, Icon }) => (
          <Link key={to} to={to} className={classes.item} activeOptions={{ includeSearch: false }}>
            <Icon />
            {label}
          </Link>
        ))}
      </nav>
      <div className={classes.foot}>
        <StreamLight />
      </div>
    </div>
  );
}
