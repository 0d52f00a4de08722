// An image of a message, drawn on a canvas: the page's policy lets no image in but the server's own.
import { useEffect, useRef, useState } from 'preact/hooks';

const TYPES = /^image\/(?:png|jpeg|gif|webp)$/;

export function MessageImage({ data, mediaType }: { readonly data: string; readonly mediaType: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [broken, setBroken] = useState(!TYPES.test(mediaType));
  useEffect(() => {
    let gone = false;
    if (!TYPES.test(mediaType)) return;
    draw(data, mediaType)
      .then((bitmap) => {
        const target = canvas.current;
        if (gone || target === null) return;
        target.width = bitmap.width;
        target.height = bitmap.height;
        target.getContext('2d')?.drawImage(bitmap, 0, 0);
      })
      .catch(() => setBroken(true));
    return () => {
      gone = true;
    };
  }, [data, mediaType]);
  if (broken) return <p class="quiet">[an image of type {mediaType} that cannot be shown]</p>;
  return (
    <canvas ref={canvas} class="message-image" role="img">
      An image
    </canvas>
  );
}

async function draw(data: string, type: string): Promise<ImageBitmap> {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return createImageBitmap(new Blob([bytes], { type }));
}
