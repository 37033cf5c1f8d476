import { type RefObject, useEffect, useState } from 'react';

const FAST_PIXELS_PER_SECOND = 3000;
const SETTLE_MILLISECONDS = 120;

/** True while the element is flung: what flies past is not worth asking the server for. */
export function useFastScroll(ref: RefObject<HTMLElement | null>): boolean {
  const [isFast, setIsFast] = useState(false);
  useEffect(() => {
    const element = ref.current;
    if (element === null) return;
    let lastTop = element.scrollTop;
    let lastTime = performance.now();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const onScroll = () => {
      const now = performance.now();
      const seconds = Math.max(1, now - lastTime) / 1000;
      const speed = Math.abs(element.scrollTop - lastTop) / seconds;
      lastTop = element.scrollTop;
      lastTime = now;
      setIsFast(speed > FAST_PIXELS_PER_SECOND);
      clearTimeout(timer);
      timer = setTimeout(() => {
        setIsFast(false);
      }, SETTLE_MILLISECONDS);
    };
    element.addEventListener('scroll', onScroll, { passive: true });
    return () => {
      clearTimeout(timer);
      element.removeEventListener('scroll', onScroll);
    };
  }, [ref]);
  return isFast;
}
