import iconUrl from '@/assets/icon.svg';
import classes from './logo.module.css';

export function Logo() {
  return (
    <span className={classes.root}>
      <img src={iconUrl} width={24} height={24} alt="" />
      Penstock
    </span>
  );
}
