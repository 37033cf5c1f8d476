import { useRouter } from '@tanstack/react-router';
import { useEffect } from 'react';

/** Moves the focus to the new page's heading, as a full page load would, and closes the menu. */
export function useRouteFocus(onChange: () => void): void {
  const router = useRouter();
  useEffect(
    () =>
      router.subscribe('onRendered', ({ fromLocation, pathChanged }) => {
        if (fromLocation === undefined || !pathChanged) return;
        onChange();
        // A tab that was pressed keeps the focus: only the page under it has changed.
        if (document.activeElement?.getAttribute('role') === 'tab') return;
        const target =
          document.querySelector<HTMLElement>('main h1') ?? document.querySelector('main');
        target?.focus({ preventScroll: true });
      }),
    [router, onChange],
  );
}
