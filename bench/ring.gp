# SPDX-License-Identifier: Apache-2.0
# The chart of ring.sh: csv and svg are set by it. Left: what handles cost, by mode. Right: bandwidth by size, of each way under
# vmm and, with a broken line, natively; the run with the most devices.
set terminal svg size 1350,560 font "sans,12" background "white"
set output svg
set datafile separator ","
set grid lc rgb "#dddddd"

devices = int(system(sprintf("awk -F, '!/^[#d]/ && $1 > most { most = $1 } END { print most + 0 }' '%s'", csv)))
most = system(sprintf("awk -F, '!/^#/ && $3 == \"get_first\" && $6 <= 2097152 && $6 > most { most = $6 } END { print most + 0 }' '%s'", csv))
costs = "get_first get_next get_again open_first open_next open_again close_again close_last"
ways = "ipc_kernel ipc_copy peer_copy local_copy own_upload staged"
colour(i) = word("#1b9e77 #d95f02 #7570b3 #e7298a #66a61e #333333", i)
modes = "native raw vmm"

# a line for each cost, in the order of the list: its name and its microseconds in that mode, 0 where it has none
cost(mode) = sprintf("< awk -F, -v OFS=, '!/^#/ && $1 == %d && $2 == \"%s\" && $6 == \"%s\" && $8 == \"us\" { us[$3] = $7 } \
END { n = split(\"%s\", name, \" \"); for (i = 1; i <= n; i++) print name[i], us[name[i]] + 0 }' '%s'", devices, mode, most, costs, csv)
# size and the mean over the pairs
way(mode, op) = sprintf("< awk -F, -v OFS=, '!/^#/ && $1 == %d && $2 == \"%s\" && $3 == \"%s\" && $8 == \"GB/s\" { sum[$6] += $7; n[$6]++ } \
END { print 1, \"NaN\"; for (b in sum) print b, sum[b] / n[b] }' '%s' | sort -t, -n", devices, mode, op, csv)

memory(op) = system(sprintf("awk -F, '$1 == %d && $2 == \"vmm\" && $3 == \"%s\" { print $7 }' '%s'", devices, op, csv))

set multiplot layout 1,2 title sprintf("Sharing device memory between processes: bench/ring.sh, %d device%s.\n\
One block in all of them takes %s MiB of device memory, a copy each %s MiB.", devices, devices > 1 ? "s" : "", \
memory("memory_shared"), memory("memory_own")) font ",13"
set title sprintf("What handles cost, blocks of %s KiB", system(sprintf("echo $((%s / 1024))", most)))
set ylabel "microseconds"
set logscale y
set yrange [0.1:*]
set style data histogram
set style histogram clustered gap 1
set style fill solid 0.85 noborder
set xtics rotate by -30 noenhanced
set key top right
plot for [m = 1:words(modes)] cost(word(modes, m)) using ($2 > 0 ? $2 : NaN):xtic(1) title word(modes, m) lc rgb colour(m)

set title "Bandwidth: lines vmm, broken lines native"
set ylabel "GB/s"
set xlabel "bytes"
set logscale xy
set autoscale x
set xrange [8192:*]
set yrange [*:*]
set xtics norotate ("16k" 16384, "64k" 65536, "256k" 262144, "1m" 1048576, "4m" 4194304, "16m" 16777216, "64m" 67108864)
set key bottom right
plot for [w = 1:words(ways)] way("vmm", word(ways, w)) using 1:2 with linespoints lc rgb colour(w) pt 7 ps 0.6 title word(ways, w) noenhanced, \
     for [w = 1:words(ways)] way("native", word(ways, w)) using 1:2 with lines lc rgb colour(w) dt 2 notitle
unset multiplot
