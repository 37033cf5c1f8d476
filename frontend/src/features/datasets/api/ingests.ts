import { useMutation, useQueryClient } from '@tanstack/react-query';
import { createDataset, createIngest } from '@/api/generated';
import { datasetKeys } from '@/features/datasets/api/datasets';
import { ApiError } from '@/lib/problem';
import { idempotencyKey } from '@/lib/api-client';

export interface IngestRequest {
  dataset: string;
  isNewDataset: boolean;
  description: string;
  path: string;
  label: string;
  group: string;
  sidecar: string;
}

const orNothing = (text: string) => (text.trim() === '' ? undefined : text.trim());

/** Makes the dataset when it is a new one, then starts reading the folder into it. */
export function useStartIngest() {
  const queryClient = useQueryClient();
  return useMutation({
    mutationFn: async (request: IngestRequest) => {
      if (request.isNewDataset) await makeDataset(request);
      const { data } = await createIngest({
        path: { dataset: request.dataset },
        headers: { 'Idempotency-Key': idempotencyKey() },
        body: {
          source: { kind: 'folder', path: request.path.trim() },
          label: orNothing(request.label),
          group: orNothing(request.group),
          sidecar: orNothing(request.sidecar),
        },
        throwOnError: true,
      });
      return data;
    },
    onSettled: () =>
      Promise.all([
        queryClient.invalidateQueries({ queryKey: datasetKeys.all }),
        queryClient.invalidateQueries({ queryKey: ['jobs'] }),
      ]),
  });
}

async function makeDataset({ dataset, description }: IngestRequest): Promise<void> {
  try {
    await createDataset({
      headers: { 'Idempotency-Key': idempotencyKey() },
      body: { name: dataset, description: orNothing(description) },
      throwOnError: true,
    });
  } catch (error) {
    // A second try after a wrong folder finds the dataset that the first one made.
    if (!(error instanceof ApiError && error.code === 'dataset.exists')) throw error;
  }
}
