import { memo, useState } from 'react';
import type { Sample } from '@/features/samples/api/samples';
import { classColor } from '@/lib/class-colors';
import classes from './sample-tile.module.css';

interface SampleTileProps {
  index: number;
  sample: Sample | undefined;
  labelValues: readonly string[] | null;
  isCurrent: boolean;
  isSelected: boolean;
  onOpen: (index: number, sample: Sample) => void;
}

export const SampleTile = memo(function SampleTile(props: SampleTileProps) {
  const { index, sample, labelValues, isCurrent, isSelected, onOpen } = props;
  if (sample === undefined) return <div className={classes.waiting} aria-hidden="true" />;
  const caption = sample.label ?? sample.key;
  return (
    <button
      type="button"
      className={classes.root}
      data-index={index}
      data-selected={isSelected || undefined}
      tabIndex={isCurrent ? 0 : -1}
      aria-label={sample.label === null ? sample.key : `${sample.label} ${sample.key}`}
      onClick={() => {
        onOpen(index, sample);
      }}
    >
      <Picture key={sample.id} url={sample.thumbnail_url} />
      <span className={classes.caption} dir="auto">
        {sample.label !== null && <ClassDot color={classColor(labelValues, sample.label)} />}
        <span className={classes.text}>{caption}</span>
      </span>
    </button>
  );
});

function ClassDot({ color }: { color: string }) {
  return <span className={classes.dot} style={{ background: color }} />;
}

function Picture({ url }: { url: string | null }) {
  const [isBroken, setIsBroken] = useState(false);
  if (url === null || isBroken) {
    return <span className={classes.none}>no preview</span>;
  }
  return (
    <img
      className={classes.image}
      src={url}
      alt=""
      decoding="async"
      draggable={false}
      onError={() => {
        setIsBroken(true);
      }}
    />
  );
}
