import { useParams } from '@tanstack/react-router';
import { StartLines } from '@/app/start-lines';
import { LivePage } from '@/features/live/components/live-page';

export function LiveRoute() {
  return <LivePage howToStart={<StartLines />} />;
}

export function RunRoute() {
  const { runId } = useParams({ from: '/shell/live/$runId' });
  return <LivePage key={runId} runId={runId} howToStart={<StartLines />} />;
}
