import { useParams } from '@tanstack/react-router';
import { LivePage } from '@/features/live/components/live-page';

export function LiveRoute() {
  return <LivePage />;
}

export function RunRoute() {
  const { runId } = useParams({ from: '/shell/live/$runId' });
  return <LivePage key={runId} runId={runId} />;
}
