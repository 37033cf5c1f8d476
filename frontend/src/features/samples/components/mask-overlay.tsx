import { useEffect, useRef } from 'react';
import classes from './sample-image.module.css';

const OPACITY = 115;
// Class 0 is the background; further classes repeat.
const CLASS_RGB = [
  [238, 102, 119],
  [102, 204, 238],
  [204, 187, 68],
  [170, 51, 119],
] as const;

/** Paints a mask over the picture: whatever is not 0 gets a colour, so 0/1 and 0/255 masks both show. */
export function MaskOverlay({ url }: { url: string }) {
  const canvasRef = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    let isCurrent = true;
    const picture = new Image();
    picture.onload = () => {
      if (isCurrent && canvasRef.current !== null) paint(canvasRef.current, picture);
    };
    picture.src = url;
    return () => {
      isCurrent = false;
    };
  }, [url]);
  return <canvas ref={canvasRef} className={classes.mask} role="img" aria-label="Mask" />;
}

function paint(canvas: HTMLCanvasElement, picture: HTMLImageElement): void {
  canvas.width = picture.naturalWidth;
  canvas.height = picture.naturalHeight;
  const context = canvas.getContext('2d', { willReadFrequently: true });
  if (context === null) return;
  context.drawImage(picture, 0, 0);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height);
  const data = pixels.data;
  for (let at = 0; at < data.length; at += 4) {
    const value = data[at] ?? 0;
    const color = CLASS_RGB[value === 255 ? 0 : (value - 1) % CLASS_RGB.length] ?? CLASS_RGB[0];
    data[at] = color[0];
    data[at + 1] = color[1];
    data[at + 2] = color[2];
    data[at + 3] = value === 0 ? 0 : OPACITY;
  }
  context.putImageData(pixels, 0, 0);
}
