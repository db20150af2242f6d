proc fib n { expr {$n < 2 ? $n : [fib [expr {$n - 1}]] + [fib [expr {$n - 2}]]} }
puts [fib 16]
for {set i 0} {$i < 500} {incr i} { lappend l [expr {($i * 7919) % 503}]; dict incr d [expr {$i % 7}] $i }
puts [lrange [lsort -integer -decreasing $l] 0 5]; puts $d
puts [regsub -all {(\w)(\w)} "swap these letters" {\2\1}]; puts [string map {a b} banana]
if {[catch {error "expected"} m]} { puts "caught $m" }; puts [format %.6f [expr {sin(1) * exp(2)}]]
coroutine gen apply {{} { yield; for {set i 0} 1 {incr i} { yield $i } }}; puts "[gen] [gen] [gen]"; puts [expr {2 ** 200}]
