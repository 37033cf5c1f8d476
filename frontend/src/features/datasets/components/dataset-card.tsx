import { Text, Title } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { TimeAgo } from '@/components/time-ago';
import type { Dataset } from '@/features/datasets/api/datasets';
import { formatBytes, formatQuantity } from '@/lib/format';
import classes from './dataset-card.module.css';

const COVER_COUNT = 4;

export function DatasetCard({ dataset }: { dataset: Dataset }) {
  const covers = dataset.cover_thumbnails.slice(0, COVER_COUNT);
  return (
    <li className={classes.root}>
      <div className={classes.cover} aria-hidden="true">
        {Array.from({ length: COVER_COUNT }, (_, index) => (
          <div key={index} className={classes.tile}>
            {covers[index] !== undefined && (
              <img src={covers[index]} alt="" loading="lazy" decoding="async" />
            )}
          </div>
        ))}
      </div>
      <div className={classes.body}>
        <Title order={2} className={classes.title}>
          <Link
            to="/datasets/$slug/{-$tab}"
            params={{ slug: dataset.slug, tab: undefined }}
            className={classes.link}
            dir="auto"
          >
            {dataset.slug}
          </Link>
          {dataset.latest_version !== null && (
            <span className={classes.version}>v{dataset.latest_version}</span>
          )}
        </Title>
        {dataset.description !== '' && (
          <Text size="sm" c="dimmed" lineClamp={2} dir="auto">
            {dataset.description}
          </Text>
        )}
        <Text size="xs" c="dimmed" className={`numbers ${classes.facts ?? ''}`}>
          {dataset.latest_version === null
            ? 'No version yet'
            : `${formatQuantity(dataset.sample_count, 'sample')} · ${formatBytes(dataset.byte_count)}`}
          {' · '}
          <TimeAgo time={dataset.updated_at} />
        </Text>
      </div>
    </li>
  );
}
