# Work for the whole-process benchmark: regular expressions, hashes, sorting.
use strict;
use warnings;
my ($seed, %count, @words) = (1);
sub number { $seed = ($seed * 1103515245 + 12345) % 2147483648; return $seed }
for (1 .. 120000) {
    my $word = sprintf("w%d-%x", number() % 3000, number() % 50);
    push @words, $word;
    $count{$1} += $2 if $word =~ /^w(\d+)-[0-9a-f]*?([0-9])$/;
}
my $text = join(' ', @words);
my $found = () = $text =~ /\bw(\d)\d*-\1\w*/g;
(my $other = $text) =~ s/(\d+)-(\w+)/$2:$1/g;
my @sorted = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print "$found ", length($other), " @sorted[0 .. 9]\n";
