"""Cuts a picture into square patches of numbers."""

from .lanes import fast


@fast
def write_patches(image, side, block, frames, values, out):
    """out f32 [patch, channel, frame, y, x] of image u8 [row, column, 3]: values f32 [channel, 256] of its bytes.

    Patches of side x side pixels, in blocks of block x block: blocks in raster order, patches of a block in raster
    order. All frames are the same.
    """
    patch = 0
    for block_row in range(0, image.shape[0], side * block):
        for block_column in range(0, image.shape[1], side * block):
            for top in range(block_row, block_row + side * block, side):
                for left in range(block_column, block_column + side * block, side):
                    for c in range(3):
                        first = out[patch, c, 0]
                        for y in range(side):
                            for x in range(side):
                                first[y, x] = values[c, image[top + y, left + x, c]]
                        for frame in range(1, frames):
                            out[patch, c, frame] = first
                    patch += 1


@fast
def write_patches_channels_last(image, side, values, out):
    """out f32 [patch, y, x, channel], patches in raster order; the others as of `write_patches`."""
    patch = 0
    for top in range(0, image.shape[0], side):
        for left in range(0, image.shape[1], side):
            for y in range(side):
                for x in range(side):
                    for c in range(3):
                        out[patch, y, x, c] = values[c, image[top + y, left + x, c]]
            patch += 1
