import { useElementSize, useMergedRef } from '@mantine/hooks';
import { useVirtualizer } from '@tanstack/react-virtual';
import { type KeyboardEvent, useCallback, useEffect, useRef, useState } from 'react';
import type { Sample, SampleScope } from '@/features/samples/api/samples';
import { SampleTile } from '@/features/samples/components/sample-tile';
import { gridShape, nextIndex } from '@/features/samples/grid-shape';
import { useFastScroll } from '@/features/samples/use-fast-scroll';
import { useSamplePages } from '@/features/samples/use-sample-pages';
import classes from './sample-grid.module.css';

const EMPTY_RANGE = [0, 0] as const;

interface SampleGridProps {
  scope: SampleScope;
  total: number;
  /** A newer question is under way: the grid is dimmed. */
  isStale: boolean;
  labelValues: readonly string[] | null;
  selectedIndex: number | null;
  onOpen: (index: number, sample: Sample) => void;
}

/** Only the rows in sight exist; the rest is height. Arrow keys move, Enter opens. */
export function SampleGrid(props: SampleGridProps) {
  const { scope, total, isStale, labelValues, selectedIndex, onOpen } = props;
  const scrollRef = useRef<HTMLDivElement>(null);
  const { ref: sizeRef, width } = useElementSize<HTMLDivElement>();
  const ref = useMergedRef(scrollRef, sizeRef);
  const shape = gridShape(width, total);
  // eslint-disable-next-line react-hooks/incompatible-library -- not memoised by a compiler here
  const virtualizer = useVirtualizer({
    count: shape.rows,
    getScrollElement: () => scrollRef.current,
    estimateSize: () => shape.rowHeight,
    overscan: 2,
    initialRect: { width: 1200, height: 800 },
  });
  useEffect(() => {
    virtualizer.measure();
  }, [virtualizer, shape.rowHeight]);
  useEffect(() => {
    scrollRef.current?.scrollTo({ top: 0 });
  }, [scope]);

  const rows = virtualizer.getVirtualItems();
  const first = rows[0];
  const last = rows.at(-1);
  const range =
    first === undefined || last === undefined
      ? EMPTY_RANGE
      : ([
          first.index * shape.columns,
          Math.min(total - 1, (last.index + 1) * shape.columns - 1),
        ] as const);
  const isFast = useFastScroll(scrollRef);
  const sampleAt = useSamplePages(scope, range, isFast);
  const [current, setCurrent] = useState(0);

  const focusTile = useCallback(
    (index: number) => {
      setCurrent(index);
      virtualizer.scrollToIndex(Math.floor(index / shape.columns), { align: 'auto' });
      requestAnimationFrame(() => {
        scrollRef.current?.querySelector<HTMLElement>(`[data-index="${String(index)}"]`)?.focus();
      });
    },
    [virtualizer, shape.columns],
  );
  const onKeyDown = (event: KeyboardEvent) => {
    const target = nextIndex(event.key, current, total, shape.columns);
    if (target === null) return;
    event.preventDefault();
    focusTile(target);
  };
  useEffect(() => {
    if (selectedIndex === null) return;
    setCurrent(selectedIndex);
    virtualizer.scrollToIndex(Math.floor(selectedIndex / shape.columns), { align: 'auto' });
  }, [selectedIndex, virtualizer, shape.columns]);

  return (
    <div ref={ref} className={classes.scroll} data-stale={isStale || undefined}>
      <div
        role="grid"
        aria-label="Samples"
        aria-rowcount={shape.rows}
        aria-colcount={shape.columns}
        aria-busy={isStale}
        className={classes.canvas}
        style={{ height: virtualizer.getTotalSize() }}
        onKeyDown={onKeyDown}
      >
        {rows.map((row) => (
          <div
            key={row.key}
            role="row"
            aria-rowindex={row.index + 1}
            className={classes.row}
            style={{
              transform: `translateY(${String(row.start)}px)`,
              gridTemplateColumns: `repeat(${String(shape.columns)}, 1fr)`,
              height: shape.tileHeight,
            }}
          >
            {Array.from({ length: shape.columns }, (_, column) => {
              const index = row.index * shape.columns + column;
              if (index >= total) return null;
              return (
                <div key={column} role="gridcell" className={classes.cell}>
                  <SampleTile
                    index={index}
                    sample={sampleAt(index)}
                    labelValues={labelValues}
                    isCurrent={index === current}
                    isSelected={index === selectedIndex}
                    onOpen={onOpen}
                  />
                </div>
              );
            })}
          </div>
        ))}
      </div>
    </div>
  );
}
