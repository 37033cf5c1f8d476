import { useEffect, useState } from 'react';

/** The time, moving on every `intervalSeconds`, so that "3 s ago" stays true. */
export function useNow(intervalSeconds: number): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      setNow(Date.now());
    }, intervalSeconds * 1000);
    return () => {
      clearInterval(timer);
    };
  }, [intervalSeconds]);
  return now;
}
