# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""Estimate the cycles of loop nests under tiles. A search tries hundreds of tilings per kernel.

Counts are doubles: integers below 2**53 are exact, and larger ones do not overflow.
"""

from cpython cimport array
from cpython.object cimport Py_SIZE
from libc.math cimport ceil, floor, log2

import array

ctypedef long long Whole

#: Stands for a stride that is not constant.
cdef Whole OPEN = -(<Whole> 1 << 62)


cdef class MachineModel:
    cdef double ops_per_cycle, exposed_latency, spill_cycles, fold_cycles, late_fraction
    cdef double line, l1_bytes, cache_sets, tracked_streams, wait_cycles, body_limit
    cdef double contention, parallel_sums, latency, ports, remainder_factor, doubling_cost
    cdef int registers, lanes, widest_step

    def __init__(self, **numbers):
        self.ops_per_cycle = numbers["ops_per_cycle"]
        self.exposed_latency = numbers["exposed_latency"]
        self.spill_cycles, self.fold_cycles = numbers["spill_cycles"], numbers["fold_cycles"]
        self.late_fraction, self.line = numbers["late_fraction"], numbers["line"]
        self.l1_bytes, self.cache_sets = numbers["l1_bytes"], numbers["cache_sets"]
        self.tracked_streams, self.wait_cycles = numbers["tracked_streams"], numbers["wait_cycles"]
        self.body_limit, self.contention = numbers["body_limit"], numbers["contention"]
        self.parallel_sums, self.latency = numbers["parallel_sums"], numbers["latency"]
        self.ports = numbers["ports"]
        self.remainder_factor = numbers["remainder_factor"]
        self.doubling_cost = numbers["doubling_cost"]
        self.registers, self.lanes = numbers["registers"], numbers["lanes"]
        self.widest_step = numbers["widest_step"]


cpdef Whole vectors_of(Whole count, Whole lanes):
    """Return the number of vectors for `count` elements.

    Elements that do not fill a vector are in narrower vectors, of power-of-two lengths.
    """
    cdef Whole vectors = count // lanes, narrow = count % lanes
    while narrow:
        vectors += narrow & 1
        narrow >>= 1
    return vectors


cdef class Tiles:
    cdef dict indices
    cdef array.array factors, lanes, extents, fixed
    cdef int count

    def __init__(self, indices, extents, fixed):
        self.indices, self.count = indices, len(indices)
        self.extents = array.array("q", extents)
        self.fixed = array.array("b", fixed)
        self.factors = array.array("q", [1] * self.count)
        self.lanes = array.array("q", [1] * self.count)

    cdef void take(self, tiles) except *:
        cdef int at
        cdef Whole *factors = self.factors.data.as_longlongs
        cdef Whole *lanes = self.lanes.data.as_longlongs
        for at in range(self.count):
            factors[at] = lanes[at] = 1
        for loop, tile in tiles.items():
            at = self.indices[loop]
            factors[at] = (<tuple> tile)[0]
            lanes[at] = (<tuple> tile)[1]

    cdef double factor(self, int at) noexcept:
        return <double> self.factors.data.as_longlongs[at]

    cdef double wide(self, int at) noexcept:
        return <double> self.lanes.data.as_longlongs[at]

    cdef double at_once(self, int at) noexcept:
        """Return the number of vectors along the tile."""
        cdef Whole factor = self.factors.data.as_longlongs[at]
        cdef Whole lanes = self.lanes.data.as_longlongs[at]
        return <double> ((factor + lanes - 1) // lanes)

    cdef double iterations(self, int at) noexcept:
        """Return the number of iterations, a partial last one as a fraction."""
        cdef Whole factor = self.factors.data.as_longlongs[at]
        cdef Whole extent = self.extents.data.as_longlongs[at]
        cdef double whole = <double> (extent // factor)
        cdef Whole rest = extent % factor
        cdef Whole lanes = self.lanes.data.as_longlongs[at]
        if rest == 0:
            return whole
        if lanes == 1:
            return whole + min(1.0, <double> (rest + 1) / <double> factor)
        # A partial iteration costs more than its share: its few sums wait for each other.
        return whole + min(1.0, (<double> vectors_of(rest, lanes) + 0.25) * lanes / factor)

    cdef double registers(self, array.array loops, int along, signed char *left_out) noexcept:
        """Return the registers of one value over `loops`, without those in `left_out`."""
        cdef double total = 1.0
        cdef int i, at
        for i in range(Py_SIZE(loops)):
            at = loops.data.as_ints[i]
            if left_out == NULL or not left_out[i]:
                total *= self.values(at, along)
        return total

    cdef double values(self, int at, int along) noexcept:
        """Return the number of values along the tile of a loop.

        If another loop is vectorized (`along`), the values are elements; else they are vectors.
        """
        return self.factor(at) if along >= 0 and at != along else self.at_once(at)

    cdef int vector(self, array.array loops) noexcept:
        """Return the first of `loops` that is vectorized; -1 if none is."""
        cdef int i
        for i in range(Py_SIZE(loops)):
            if self.lanes.data.as_longlongs[loops.data.as_ints[i]] > 1:
                return loops.data.as_ints[i]
        return -1


cdef class Load:
    cdef array.array loops, steps, closed, around
    cdef bint plain
    cdef double itemsize, streamed

    def __init__(self, loops, steps, closed, around, plain, itemsize, streamed):
        self.loops = array.array("i", loops)
        self.steps = array.array("q", [OPEN if step is None else step for step in steps])
        self.closed = array.array("b", closed)
        self.around = array.array("i", around)
        self.plain, self.itemsize, self.streamed = plain, itemsize, streamed

    cdef Whole step(self, int loop) noexcept:
        cdef int i
        for i in range(Py_SIZE(self.loops)):
            if self.loops.data.as_ints[i] == loop:
                return self.steps.data.as_longlongs[i]
        return 0

    cdef bint varies(self, int loop) noexcept:
        cdef int i
        for i in range(Py_SIZE(self.loops)):
            if self.loops.data.as_ints[i] == loop:
                return True
        return False

    cdef bint reads_across(self, int vector, Tiles tiles) noexcept:
        """Return whether the array that this LOAD reads is vectorized along another loop."""
        cdef int i, at
        for i in range(Py_SIZE(self.around)):
            at = self.around.data.as_ints[i]
            if at != vector and tiles.wide(at) > 1:
                return True
        return False

    cdef double all_lanes(self, Tiles tiles) noexcept:
        cdef double total = 1.0
        cdef int i
        for i in range(Py_SIZE(self.loops)):
            total *= tiles.wide(self.loops.data.as_ints[i])
        return total

    cdef void count_shared(
        self, Tiles tiles, int along, double *loads, double *shared
    ) noexcept:
        """Count scalar loads, and those whose values later terms of the tile reuse.

        In a sliding window, the element that one tap reads now is read by the next tap later.
        """
        cdef double count = 1.0, stays = 0.0, others = 1.0, values, iterations, reused
        cdef Whole step, advance
        cdef int i, j, n = Py_SIZE(self.loops)
        for i in range(n):
            values = tiles.values(self.loops.data.as_ints[i], along)
            count *= values
            step = self.steps.data.as_longlongs[i]
            if self.closed.data.as_schars[i] or values == 1.0 or step == OPEN or step == 0:
                continue
            reused = 0.0
            for j in range(n):
                advance = self.steps.data.as_longlongs[j]
                iterations = tiles.values(self.loops.data.as_ints[j], along)
                if not self.closed.data.as_schars[j] or iterations == 1.0 or advance == OPEN:
                    continue
                if advance % step == 0 and 0 < advance // step < values:
                    # An iteration advances by this many positions; the other values are reused.
                    reused = values - <double> (advance // step)
                    count *= (values + (iterations - 1.0) * (values - reused)) / (
                        values * iterations)
                    break
            if reused:
                stays = reused if stays == 0.0 else stays * reused
            else:
                others *= values
        loads[0] += count
        shared[0] += stays * others

    cdef bint is_block(self, int across, Whole step, Tiles tiles) noexcept:
        """Return whether transposing a block along `across` can replace a strided load."""
        cdef Whole factor = tiles.factors.data.as_longlongs[across]
        return (
            self.plain and factor >= 4 and factor & (factor - 1) == 0
            and tiles.wide(across) == 1 and step != OPEN and self.step(across) == 1
        )


cdef class Read:
    cdef array.array loops, nbytes, spread, closed
    cdef double itemsize

    def __init__(self, itemsize, loops, nbytes, spread, closed):
        self.itemsize = itemsize
        self.loops = array.array("i", loops)
        self.nbytes = array.array("d", nbytes)
        self.spread = array.array("d", spread)
        self.closed = array.array("d", closed)

    cdef void lines(
        self, Tiles tiles, MachineModel model, bint once, double *count, double *sets,
        double *streams,
    ) noexcept:
        """Count cache lines that a tile reads, their cache sets, and the separate streams.

        If `once` is true, count those that one iteration reads.
        """
        cdef double runs = 1.0, spread = 1.0, side = 1.0, run = self.itemsize
        cdef double nbytes, size, of_run
        cdef int i
        for i in range(Py_SIZE(self.loops)):
            nbytes = self.nbytes.data.as_doubles[i]
            size = self.closed.data.as_doubles[i]
            if size == 0 or once:
                size = tiles.factor(self.loops.data.as_ints[i])
            if nbytes <= max(run, model.line):
                run += nbytes * (size - 1)
            else:
                runs *= size
                spread *= min(size, self.spread.data.as_doubles[i])
            if nbytes > model.line and self.closed.data.as_doubles[i] == 0:
                side *= size
        of_run = ceil(run / model.line)
        count[0] = runs * of_run
        sets[0] = min(spread * of_run, model.cache_sets)
        streams[0] = side


cdef class NestCost:
    cdef Tiles tiles
    cdef MachineModel model
    cdef array.array around, closed, fixed
    cdef list loads, reads
    cdef double sums, fills, work, filling, singles, reserved
    cdef bint sequential, is_row, is_interleaved

    def __init__(self, tiles, model, around, closed, loads, reads, **numbers):
        self.tiles, self.model = tiles, model
        self.around = array.array("i", around)
        self.closed = array.array("i", closed)
        self.loads, self.reads = loads, reads
        self.sums, self.fills = numbers["sums"], numbers["fills"]
        self.work, self.filling = numbers["work"], numbers["filling"]
        self.singles, self.reserved = numbers["singles"], numbers["reserved"]
        self.sequential, self.is_row = numbers["sequential"], numbers["is_row"]
        self.is_interleaved = numbers["is_interleaved"]

    cdef double cycles(self) except? -1.0:
        """Return the estimated cycles of all iterations under the current tiles."""
        cdef Tiles tiles = self.tiles
        cdef MachineModel model = self.model
        cdef int i, along = tiles.vector(self.closed)
        cdef double results = tiles.registers(self.around, along, NULL)
        cdef double accumulators = self.sums * results
        cdef double depth = 1.0, loads = 0.0, shuffles = 0.0, held = 1.0, shared = 0.0, streamed = 0.0
        cdef double arithmetic, stores, parallel, latency, step, cost, packed
        cdef double own_iterations, iterations
        for i in range(Py_SIZE(self.closed)):
            depth *= tiles.at_once(self.closed.data.as_ints[i])
        for load in self.loads:
            self.count_load(<Load> load, along, &loads, &shuffles, &held, &shared)
            if self.is_row:
                streamed += self.count_streamed(<Load> load, along)
        arithmetic = accumulators * depth * self.work / model.ops_per_cycle
        arithmetic *= 1 + model.exposed_latency / max(1.0, accumulators)
        arithmetic += results * depth * self.filling / model.ops_per_cycle
        stores = results * depth * self.fills
        parallel = 1.0 if self.sequential else min(
            depth, floor(model.parallel_sums / max(1.0, accumulators)))
        latency = model.latency * depth / max(1.0, parallel) if self.sums else 0.0
        loads /= model.ports
        # The units work in parallel; the work of other units still costs issue slots.
        step = model.contention * (arithmetic + loads + stores + shuffles + latency + streamed)
        step = max(arithmetic, loads, stores, shuffles, latency, streamed) + step + 1.0
        if not self.is_row:
            own_iterations = 1.0
            for i in range(Py_SIZE(self.closed)):
                own_iterations *= tiles.iterations(self.closed.data.as_ints[i])
            step += self.waits() / own_iterations + self.conflicts()
        iterations = 1.0
        for i in range(Py_SIZE(self.around)):
            iterations *= tiles.iterations(self.around.data.as_ints[i])
        for i in range(Py_SIZE(self.closed)):
            iterations *= tiles.iterations(self.closed.data.as_ints[i])
        cost = step * iterations
        if along >= 0:
            packed = 1.0
            for i in range(Py_SIZE(self.around)):
                packed = max(packed, tiles.wide(self.around.data.as_ints[i]))
            # Vectors that are reduced in pairs cost three instructions per result; one that is
            # reduced alone costs two per round.
            cost += self.singles * (3.0 if packed > 1 else 2.0 * max(1, self.rounds()) + 3.0)
        if self.is_interleaved:
            # The rows of a tile are reduced at the same time, so only one of them waits per round.
            cost += self.tiled() * model.fold_cycles * self.rounds()
        # One accumulator per sum is needed in any case.
        # Scalars that stay in registers also serve as the reserved temporaries.
        held += max(shared, self.reserved)
        if accumulators > self.sums and accumulators + held >= model.registers:
            cost += model.spill_cycles
        return cost

    cdef int rounds(self) noexcept:
        """Return the number of rounds in which the lanes of a vector are reduced."""
        cdef int rounds = 0, lanes = self.model.lanes
        while lanes > 1:
            rounds += 1
            lanes >>= 1
        return rounds

    cdef double tiled(self) noexcept:
        cdef double total = 1.0
        cdef int i, at
        for i in range(Py_SIZE(self.around)):
            at = self.around.data.as_ints[i]
            total *= ceil(
                <double> self.tiles.extents.data.as_longlongs[at] / self.tiles.factor(at)
            )
        return total

    cdef void count_load(
        self, Load x, int along, double *loads, double *shuffles, double *held, double *shared
    ) noexcept:
        """Add one LOAD to the loads and shuffles of an iteration, and to the live registers.

        Values that results share (`shared`) and values held for all results (`held`) are live at
        the same time.
        """
        cdef Tiles tiles = self.tiles
        cdef double count = tiles.registers(x.loops, along, NULL)
        cdef double lanes, depth, kept
        cdef int across, vector = along if along >= 0 and x.varies(along) else -1
        cdef Whole stride, step
        if along < 0:
            vector = tiles.vector(x.loops)
        if vector < 0:
            x.count_shared(tiles, along, loads, shared)
            return
        stride = x.step(vector)
        step = OPEN if x.reads_across(vector, tiles) else stride
        lanes = tiles.wide(vector)
        across = self.block(x, stride)
        if step == 1:
            loads[0] += count
            kept = tiles.registers(x.loops, along, x.closed.data.as_schars)
            held[0] = max(held[0], min(count, kept))
        elif across >= 0:
            depth = tiles.factor(across)
            loads[0] += count * lanes / depth
            shuffles[0] += count * log2(depth)
            # Rows of four floats are gathered directly into the lanes of a full register;
            # longer rows are all live at once.
            held[0] = max(held[0], count + (lanes if depth > 4 else 0))
        elif x.plain and step != OPEN and step != 0 and abs(step) <= self.model.widest_step:
            loads[0] += count * abs(step)
            shuffles[0] += count * abs(step)
        else:
            loads[0] += count * lanes
            shuffles[0] += 2 * count * lanes

    cdef int block(self, Load x, Whole stride) noexcept:
        """Return the loop along which a strided load can be transposed; -1 if there is none."""
        cdef int i, at, first = Py_SIZE(self.closed) - 1 if self.sums else 0
        for i in range(first, Py_SIZE(self.closed)):
            at = self.closed.data.as_ints[i]
            if x.is_block(at, stride, self.tiles):
                return at
        return -1

    cdef double count_streamed(self, Load x, int along) noexcept:
        """Return the cycles of an iteration for data from beyond the first-level cache."""
        cdef double nbytes
        if x.streamed == 0:
            return 0.0
        nbytes = self.tiles.registers(x.loops, along, NULL) * x.all_lanes(self.tiles) * x.itemsize
        return nbytes * x.streamed

    cdef double waits(self) noexcept:
        """Return the cycles for which one tile of results waits for cache lines.

        It waits if the lines are evicted from the first-level cache before the adjacent tile reads
        them again. Each such line costs a full wait if there are more streams than the prefetcher
        tracks, else a part of it (`late`).
        """
        cdef MachineModel model = self.model
        cdef double count, sets, streams, all = 0.0, waited = 0.0
        for read in self.reads:
            (<Read> read).lines(self.tiles, model, False, &count, &sets, &streams)
            all += count
        for read in self.reads:
            (<Read> read).lines(self.tiles, model, False, &count, &sets, &streams)
            if model.line * all > model.l1_bytes or self.evicts(count, sets):
                waited += count * (1.0 if streams > model.tracked_streams else model.late_fraction)
        return waited * model.wait_cycles

    cdef double conflicts(self) noexcept:
        """Return the cycles for which one iteration waits for lines that evict each other."""
        cdef double count, sets, streams, waited = 0.0
        for read in self.reads:
            (<Read> read).lines(self.tiles, self.model, True, &count, &sets, &streams)
            if self.evicts(count, sets):
                waited += count
        return waited * self.model.wait_cycles

    cdef bint evicts(self, double count, double sets) noexcept:
        """Return whether `count` lines in so many sets evict each other from the L1 cache."""
        cdef MachineModel model = self.model
        return count > floor(sets * model.l1_bytes / (model.cache_sets * model.line))

    cdef double charge(self) noexcept:
        """Return the factor by which the code size of the copies of the body raises the cycles."""
        cdef double charge = 1.0, written
        cdef int i
        for i in range(Py_SIZE(self.around)):
            charge *= self.remainder(self.around.data.as_ints[i])
        for i in range(Py_SIZE(self.closed)):
            charge *= self.remainder(self.closed.data.as_ints[i])
        if self.fills == 0:
            return charge
        written = 1.0
        for i in range(Py_SIZE(self.around)):
            written *= self.tiles.at_once(self.around.data.as_ints[i])
        for i in range(Py_SIZE(self.closed)):
            written *= self.tiles.at_once(self.closed.data.as_ints[i])
        written *= self.filling + self.work * self.sums
        return charge * (
            1.0 + self.model.doubling_cost * log2(max(1.0, written / self.model.body_limit))
        )

    cdef double remainder(self, int at) noexcept:
        """Return the factor for a remainder: another copy of the body to compile and to cache."""
        cdef Whole extent = self.tiles.extents.data.as_longlongs[at]
        cdef Whole factor = self.tiles.factors.data.as_longlongs[at]
        cdef bint is_copied = self.tiles.fixed.data.as_schars[at] and extent % factor
        return self.model.remainder_factor if is_copied else 1.0


def cycles(list nests not None, given):
    cdef double total = 0.0
    cdef Tiles tiles = None
    for nest in nests:
        if (<NestCost> nest).tiles is not tiles:
            tiles = (<NestCost> nest).tiles
            tiles.take(given)
        total += (<NestCost> nest).cycles()
    return total


def charge(NestCost nest not None, given):
    nest.tiles.take(given)
    return nest.charge()
