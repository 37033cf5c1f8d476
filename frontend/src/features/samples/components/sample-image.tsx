import { Group, SegmentedControl, Switch, Text } from '@mantine/core';
import { useState } from 'react';
import type { SampleDetail } from '@/features/samples/api/samples';
import { MaskOverlay } from '@/features/samples/components/mask-overlay';
import { formatBytes } from '@/lib/format';
import classes from './sample-image.module.css';

interface SampleImageProps {
  sample: SampleDetail;
  isMaskShown: boolean;
  onToggleMask: () => void;
}

export function SampleImage({ sample, isMaskShown, onToggleMask }: SampleImageProps) {
  const images = sample.fields.filter(({ kind }) => kind === 'image');
  const mask = sample.fields.find(({ kind }) => kind === 'mask');
  const [chosen, setChosen] = useState<string | null>(null);
  const image = images.find(({ name }) => name === chosen) ?? images[0];
  if (image === undefined) return <Text c="dimmed">This sample has no picture.</Text>;
  const { width, height } = image;
  return (
    <figure className={classes.root}>
      <div
        className={classes.stage}
        style={
          width && height ? { aspectRatio: `${String(width)} / ${String(height)}` } : undefined
        }
      >
        <img
          key={image.url}
          className={classes.image}
          src={image.url}
          alt={`${image.name} of ${sample.key}`}
        />
        {mask !== undefined && isMaskShown && <MaskOverlay key={mask.url} url={mask.url} />}
      </div>
      <figcaption className={classes.caption}>
        <span className="numbers">
          {width && height ? `${String(width)} × ${String(height)} · ` : ''}
          {formatBytes(image.size)}
          {image.media_type ? ` · ${image.media_type}` : ''}
        </span>
        <Group gap="sm">
          {images.length > 1 && (
            <SegmentedControl
              size="xs"
              data={images.map(({ name }) => name)}
              value={image.name}
              onChange={setChosen}
            />
          )}
          {mask !== undefined && (
            <Switch size="xs" label="Mask (m)" checked={isMaskShown} onChange={onToggleMask} />
          )}
        </Group>
      </figcaption>
    </figure>
  );
}
