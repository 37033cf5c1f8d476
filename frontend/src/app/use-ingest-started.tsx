import { notifications } from '@mantine/notifications';
import { useNavigate } from '@tanstack/react-router';
import { useCallback } from 'react';

/** After "Add data": to the job that reads the folder, whose progress moves there. */
export function useIngestStarted() {
  const navigate = useNavigate();
  return useCallback(
    (jobId: string, dataset: string) => {
      notifications.show({
        title: 'Ingest started',
        message: `Reading the folder into ${dataset}.`,
      });
      void navigate({ to: '/jobs/$jobId', params: { jobId } });
    },
    [navigate],
  );
}
