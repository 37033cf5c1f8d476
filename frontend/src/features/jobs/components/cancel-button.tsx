import { Button } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { type Job, isActive, useCancelJob } from '@/features/jobs/api/jobs';
import { messageOf } from '@/lib/problem';

export function CancelButton({ job }: { job: Job }) {
  const cancel = useCancelJob();
  if (!isActive(job.state)) return null;
  return (
    <Button
      size="compact-xs"
      variant="default"
      loading={cancel.isPending}
      disabled={cancel.isSuccess}
      aria-label={`Cancel ${job.kind} ${job.dataset ?? ''}`.trim()}
      onClick={() => {
        cancel.mutate(job.id, {
          onError: (error) =>
            notifications.show({
              title: 'The job was not cancelled',
              message: messageOf(error),
              color: 'red',
            }),
        });
      }}
    >
      {cancel.isSuccess ? 'Stopping' : 'Cancel'}
    </Button>
  );
}
