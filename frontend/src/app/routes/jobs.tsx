import { useParams } from '@tanstack/react-router';
import { JobDetail } from '@/features/jobs/components/job-detail';
import { JobTable } from '@/features/jobs/components/job-table';

export function JobsRoute() {
  return <JobTable />;
}

export function JobRoute() {
  const { jobId } = useParams({ from: '/shell/jobs/$jobId' });
  return <JobDetail jobId={jobId} />;
}
