// The data inside the page: base64 of deflated bytes, unpacked when it is needed (see report/explorer.py).

const inflated = new Map();

async function bytesOf(id) {
  const text = document.getElementById(id).textContent.trim();
  const packed = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(text)
    : Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A chunk's bytes, read once; the packed text is let go. */
function chunk(number) {
  const id = `chunk-${number}`;
  if (!inflated.has(id)) {
    inflated.set(
      id,
      bytesOf(id).then((bytes) => {
        document.getElementById(id).textContent = '';
        return bytes;
      }),
    );
  }
  return inflated.get(id);
}

const json = (id) => JSON.parse(document.getElementById(id).textContent);

const bit = (flags, place) => (flags[place >> 3] >> (place & 7)) & 1;

/** One table's rewards: everything by row of its vocabulary but `order`, the rows from the highest reward down. */
function unpacked(bytes, rows, { bits, decimals }) {
  const order = new Uint32Array(rows);
  let held = 0,
    count = 0,
    at = 0;
  const mask = 2 ** bits - 1;
  for (let i = 0; i < rows; i++) {
    // 32 bits hold what is left over, a byte, and up to 23 bits of a row
    while (count < bits) {
      held |= bytes[at++] << count;
      count += 8;
    }
    order[i] = held & mask;
    held >>>= bits;
    count -= bits;
  }
  const falling = new Float64Array(rows); // in units of the last decimal: whole numbers, exact below 2^53
  let last = 0;
  for (let i = 0; i < rows; i++) {
    let step = 0,
      scale = 1,
      byte;
    do {
      byte = bytes[at++];
      step += (byte & 127) * scale;
      scale *= 128;
    } while (byte & 128);
    last = i > 0 ? last - step : step % 2 ? -(step + 1) / 2 : step / 2;
    falling[i] = last;
  }
  const flags = () => bytes.subarray(at, (at += Math.ceil(rows / 8)));
  const ties = flags(),
    certified = flags(),
    survives = flags(),
    known = flags();
  const units = new Float64Array(rows),
    rank = new Uint32Array(rows),
    tied = new Uint8Array(rows);
  for (let i = 0; i < rows; i++) {
    const row = order[i],
      ties_with_last = bit(ties, i);
    units[row] = falling[i];
    rank[row] = ties_with_last ? rank[order[i - 1]] : i + 1;
    if (ties_with_last) tied[row] = tied[order[i - 1]] = 1;
  }
  const scale = 10 ** decimals;
  return {
    order,
    rank,
    reward: (row) => units[row] / scale,
    isTied: (row) => tied[row] === 1,
    isCertified: (row) => bit(certified, row) === 1,
    survives: (row) => (bit(known, row) ? bit(survives, row) === 1 : null),
  };
}
