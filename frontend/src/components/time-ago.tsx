import { formatAgo, formatTime } from '@/lib/format';
import { useNow } from '@/lib/use-now';

export function TimeAgo({ time }: { time: string }) {
  const now = useNow(20);
  return (
    <time dateTime={time} title={formatTime(time)}>
      {formatAgo(time, now)}
    </time>
  );
}
