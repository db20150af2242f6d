use strict; use warnings;
my (%count, @long);
while (<>) { for (split) { $count{$_}++; push @long, $_ if length > 9 } }
for my $w ((sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count)[0 .. 9]) { printf "%-8s %5d\n", $w, $count{$w} }
print scalar(@long), " ", join(",", map { ucfirst } @long[0 .. 4]), "\n";
my $ok = eval { die { code => 42 }; 1 }; print "died $@->{code}\n" unless $ok;
sub fib { my $n = shift; $n < 2 ? $n : fib($n - 1) + fib($n - 2) } print fib(17), "\n";
my $text = join " ", 1 .. 300; $text =~ s/(\d)(\d)/$2$1/g; print length($text), " ", substr($text, 50, 30), "\n";
print sprintf("%.10f %b %x %e", atan2(1, 1) * 4, 1000, 48879, 12345.678), "\n"; print pack("A3 n C", "abcd", 258, 65), "\n";
local $SIG{ALRM} = sub { print "alarm\n" }; kill ALRM => $$; warn "to stderr\n";
