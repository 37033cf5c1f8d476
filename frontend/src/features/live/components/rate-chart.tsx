import { useComputedColorScheme } from '@mantine/core';
import { useEffect, useRef } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { timeSpan, type SeriesPoint } from '@/features/live/series';
import { formatRate } from '@/lib/format';
import classes from './run-chart.module.css';

const HEIGHT_PIXELS = 180;

interface RateChartProps {
  series: readonly SeriesPoint[];
  label: string;
}

/** Loaded on use (see run-chart): the plot library is needed nowhere else. */
export function RateChart({ series, label }: RateChartProps) {
  const hostRef = useRef<HTMLDivElement>(null);
  const plotRef = useRef<uPlot | null>(null);
  const dataRef = useRef(series);
  const scheme = useComputedColorScheme('light');
  useEffect(() => {
    const host = hostRef.current;
    if (host === null) return;
    const plot = new uPlot(options(host), toColumns(dataRef.current), host);
    plotRef.current = plot;
    const observer = new ResizeObserver(() => {
      plot.setSize({ width: host.clientWidth, height: HEIGHT_PIXELS });
    });
    observer.observe(host);
    return () => {
      observer.disconnect();
      plot.destroy();
      plotRef.current = null;
    };
    // The colours are read once, so a change of the theme makes the plot anew.
  }, [scheme]);
  useEffect(() => {
    dataRef.current = series;
    plotRef.current?.setData(toColumns(series));
  }, [series]);
  return <div ref={hostRef} className={classes.chart} role="img" aria-label={label} />;
}

function toColumns(series: readonly SeriesPoint[]): uPlot.AlignedData {
  return [series.map(({ at }) => at), series.map((point) => point.samplesPerSecond)];
}

function options(host: HTMLElement): uPlot.Options {
  const styles = getComputedStyle(document.documentElement);
  const color = (name: string) => styles.getPropertyValue(name).trim();
  const axis: uPlot.Axis = {
    stroke: color('--mantine-color-dimmed'),
    font: `11px ${styles.getPropertyValue('--mantine-font-family')}`,
    grid: { stroke: color('--ps-line'), width: 1 },
    ticks: { show: false },
  };
  return {
    width: host.clientWidth,
    height: HEIGHT_PIXELS,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false },
    scales: {
      x: { range: (_plot, min, max) => timeSpan(min, max) },
      y: { range: (_plot, _min, max) => [0, Math.max(1, (max || 0) * 1.15)] },
    },
    axes: [
      { ...axis, values: '{HH}:{mm}:{ss}', space: 80, size: 26 },
      { ...axis, size: 56, values: (_plot, ticks) => ticks.map(formatRate) },
    ],
    series: [
      {},
      {
        label: 'samples/s',
        stroke: color('--ps-chart-line'),
        fill: color('--ps-chart-fill'),
        width: 1.75,
        // One point is no line, and would not be seen.
        points: { show: (plot) => plot.data[0].length === 1 },
        spanGaps: true,
      },
    ],
  };
}
