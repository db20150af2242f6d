! Floating point, threads (OpenMP), recursion and a select in Fortran.
module acts
  implicit none
contains
  recursive function act(n) result(r)
    integer, intent(in) :: n
    integer :: r
    select case (mod(n, 8))
    case (0); r = n + 3
    case (1); r = n * 5
    case (2); r = n - 7
    case (3); r = act(n / 2) + 1
    case (4); r = ieor(n, 85)
    case (5); r = ishft(n, 2)
    case (6); r = n / 3
    case default; r = -n
    end select
  end function
end module

program mixed
  use acts
  implicit none
  integer :: i, total
  integer(8) :: sum_
  real(8) :: wave, table(8, 8)
  complex(8) :: z
  character(len=40) :: line
  sum_ = 0
  do i = 0, 999
    sum_ = sum_ + act(i)
  end do
  print '(a,i0)', 'sum ', sum_
  total = 0
  !$omp parallel do reduction(+:total) num_threads(4)
  do i = 1, 2000
    total = total + act(i)
  end do
  print '(a,i0)', 'total ', total
  wave = 0
  do i = 1, 99
    wave = wave + sin(i * 0.1d0) * sqrt(real(i, 8))
  end do
  table = reshape([(real(i, 8), i = 1, 64)], [8, 8])
  table = matmul(table, transpose(table))
  z = exp(cmplx(0.5d0, 1.25d0, 8))
  print '(a,f0.6,1x,f0.2,1x,2f9.5)', 'wave ', wave, sum(table), z
  write (line, '(i5,e14.6)') 42, wave
  print '(a)', trim(line)
  read (line, *, iostat=i) z
  print '(a,l2)', 'read ', i /= 0
  stop 3
end program
