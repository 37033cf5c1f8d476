import type {
  DatasetRead,
  DatasetSchema,
  JobRead,
  LoaderRead,
  RunPoint,
  RunRead,
  SampleDetail,
  SampleRead,
  SplitRead,
  TokenRead,
  VersionRead,
} from '@/api/generated';

const NOON = '2026-11-16T12:00:00Z';

export function uuid(number: number): string {
  return `01900000-0000-7000-8000-${String(number).padStart(12, '0')}`;
}

export const schema: DatasetSchema = {
  fields: [
    { name: 'image', kind: 'image' },
    { name: 'mask', kind: 'mask' },
  ],
  columns: [
    { name: 'tumor', kind: 'category', role: 'label', values: ['normal', 'tumor'] },
    { name: 'patient', kind: 'category', role: 'group', values: ['P001', 'P002'] },
    { name: 'age', kind: 'int' },
  ],
};

export function makeDataset(changes: Partial<DatasetRead> = {}): DatasetRead {
  return {
    id: uuid(1),
    slug: 'demo',
    project: 'default',
    description: 'Patches of two patients',
    schema,
    latest_version: 1,
    default_split: 'by-patient',
    sample_count: 250,
    byte_count: 4_500_000,
    created_at: NOON,
    updated_at: NOON,
    cover_thumbnails: ['/api/v1/datasets/demo/versions/1/samples/a/thumbnail'],
    ...changes,
  };
}

export function makeVersion(changes: Partial<VersionRead> = {}): VersionRead {
  return {
    id: uuid(2),
    dataset: 'demo',
    number: 1,
    digest: `b3:${'9f2c41ab'.repeat(8)}`,
    sample_count: 250,
    byte_count: 4_500_000,
    parent: null,
    created_at: NOON,
    job_id: uuid(40),
    schema,
    quarantined_count: 2,
    ...changes,
  };
}

export function makeSample(index: number): SampleRead {
  const label = index % 3 === 0 ? 'tumor' : 'normal';
  const patient = index % 2 === 0 ? 'P001' : 'P002';
  const id = uuid(1000 + index);
  return {
    id,
    source: 'slides',
    key: `${patient}/${String(index)}.png`,
    row: index,
    label,
    metadata: { tumor: label, patient, age: 40 + (index % 50) },
    fields: [
      {
        name: 'image',
        kind: 'image',
        media_type: 'image/png',
        size: 18_000,
        width: 96,
        height: 96,
      },
      { name: 'mask', kind: 'mask', media_type: 'image/png', size: 400, width: 96, height: 96 },
    ],
    thumbnail_url: `/api/v1/datasets/demo/versions/1/samples/${id}/thumbnail`,
  };
}

export function makeSampleDetail(sample: SampleRead): SampleDetail {
  return {
    ...sample,
    fields: sample.fields.map((field) => ({
      ...field,
      object_id: sample.id,
      xxh3: '00ff',
      blake3: `b3:${'ab'.repeat(32)}`,
      url: `/api/v1/datasets/demo/versions/1/samples/${sample.id}/fields/${field.name}`,
    })),
  };
}

export function makeSplit(changes: Partial<SplitRead> = {}): SplitRead {
  return {
    id: uuid(3),
    dataset: 'demo',
    name: 'by-patient',
    number: 1,
    version: 1,
    digest: `b3:${'77aa'.repeat(16)}`,
    recipe: {
      format: 1,
      subsets: [
        { name: 'train', ratio: 0.8, count: null },
        { name: 'val', ratio: 0.2, count: null },
      ],
      group_by: 'patient',
      stratify_by: ['tumor'],
      filter: null,
      seed: 7,
    },
    is_default: true,
    subsets: [
      {
        name: 'train',
        count: 200,
        digest: 'b3:01',
        groups: 48,
        asked: 0.8,
        achieved: 0.8,
        classes: { normal: 150, tumor: 50 },
      },
      {
        name: 'val',
        count: 50,
        digest: 'b3:02',
        groups: 12,
        asked: 0.2,
        achieved: 0.2,
        classes: { normal: 38, tumor: 12 },
      },
    ],
    report: { groups: 60, shared_groups: 0, shared_content: 0, warnings: [] },
    unused: 0,
    created_at: NOON,
    ...changes,
  };
}

export function makeJob(changes: Partial<JobRead> = {}): JobRead {
  return {
    id: uuid(40),
    kind: 'ingest',
    dataset: 'demo',
    state: 'running',
    progress: { done: 100, total: 250, phase: 'write', unit: 'samples' },
    result: null,
    error: null,
    quarantined: [],
    attempts: 1,
    created_at: NOON,
    started_at: NOON,
    ended_at: null,
    created_by: 'anna',
    ...changes,
  };
}

export function makeLoader(changes: Partial<LoaderRead> = {}): LoaderRead {
  return {
    id: uuid(60),
    rank: 0,
    host: 'gpu1',
    pid: 4100,
    state: 'running',
    message: null,
    samples_per_second: 1200,
    bytes_per_second: 15_000_000,
    wait_share: 0.01,
    wait_ms_per_batch: 0.5,
    ready_batches: 8,
    window_bytes: 64_000_000,
    p50_ms: 12,
    p99_ms: 40,
    retries: 0,
    samples: 50_000,
    epoch: 3,
    step: 620,
    steps: 1000,
    decode_share: 0.1,
    ...changes,
  };
}

export function makeRun(changes: Partial<RunRead> = {}): RunRead {
  return {
    id: uuid(50),
    name: 'resnet-a',
    dataset: 'demo',
    version: 1,
    split: 'by-patient@1',
    subset: 'train',
    user: 'anna',
    state: 'running',
    started_at: NOON,
    last_seen_at: new Date().toISOString(),
    ended_at: null,
    world_size: 1,
    loaders: [makeLoader()],
    totals: {
      samples_per_second: 1200,
      bytes_per_second: 15_000_000,
      wait_share: 0.01,
      samples: 50_000,
      epoch: 3,
      epoch_share: 0.62,
    },
    ...changes,
  };
}

export function makePoint(changes: Partial<RunPoint> = {}): RunPoint {
  return {
    at: NOON,
    loader_id: uuid(60),
    seconds: 2,
    epoch: 3,
    step: 600,
    steps: 1000,
    samples: 2400,
    bytes: 30_000_000,
    batches: 10,
    wait_seconds: 0.02,
    decode_seconds: 0.2,
    ready_batches: 8,
    window_bytes: 64_000_000,
    inflight_bytes: 1_000_000,
    request_p50_ms: 12,
    request_p99_ms: 40,
    retries: 0,
    errors: 0,
    ...changes,
  };
}

export function makeToken(changes: Partial<TokenRead> = {}): TokenRead {
  return {
    id: uuid(70),
    name: 'gpu-box',
    prefix: 'pst_4f2a',
    created_at: NOON,
    last_used_at: null,
    expires_at: null,
    ...changes,
  };
}
